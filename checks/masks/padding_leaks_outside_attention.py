"""Attention is masked, yet padding gets in elsewhere: a convolution, a norm over time, a recurrence, a Fourier mixer.

What it looks at
    Two runs that differ in padding's content alone, compared operation by operation: the first whose output at a real
    position differs although none of its inputs does there. It stands outside attention and is no pooling.

Why it matters
    Whatever mixes positions has to be told about padding. A mask that reaches attention alone stops one of two doors.

What you see
    Results that depend on the batch although the attention maps are clean; most at the end of short sentences, or
    everywhere where a mean or a variance is taken over time.

How to fix it
    Set padded positions to zero before every convolution, and take statistics over real positions only::

        x = self.conv((x * keep[..., None]).transpose(1, 2)).transpose(1, 2)
        x = nn.LayerNorm(d_model)(x)          # over features; GroupNorm over time reads padding

When it does not apply
    The encoder is not told what is padding; padding gets in at attention over all positions (other rules say how), or
    at the pooling.

Where it points
    The first operation that lets padding in.

References
    Gulati et al. 2020 (Conformer); the convolution module of transformers' Wav2Vec2Bert masks, Wav2Vec2Conformer's
    does not.
"""

from __future__ import annotations

from encdoctor.evidence.attention import AttentionSites
from encdoctor.evidence.influence import PaddingInfluence, SampleMixing
from encdoctor.evidence.leaks import Entry, PaddingEntry, Way
from encdoctor.limits import PADDING_MOVES_NOTHING
from encdoctor.model import NotApplicable, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("MSK023", "padding-leaks-outside-attention", Severity.ERROR)
NORMS = {"native_group_norm", "native_batch_norm", "mean", "var", "var_mean", "std", "std_mean"}


def check(
    padding: PaddingInfluence, attention: AttentionSites, entering: PaddingEntry, mixing: SampleMixing
) -> Verdict:
    if not padding.measured:
        return NotApplicable(padding.why)
    entry = entering.entry
    if not padding.leaks or entry is None or not _is_elsewhere(entry, attention):
        return Passed(padding.on_padding)
    if entry.rearranges or mixing.across > 0:
        return Passed(padding.on_padding, "tokens or samples are mixed up there, which is another rule's to say")
    if attention.sites and not any(site.reads_mask() for site in attention.sites):
        return Passed(padding.on_padding, "attention is not masked either")
    statistics = entry.operation in NORMS
    return Suspect(
        RULE,
        message=f"padding gets into real positions {_where(entry)}, at {entry.operation}",
        cause=f"{entry.operation} in {entry.module or 'forward'} reads padded positions",
        measured=padding.on_padding,
        limit=PADDING_MOVES_NOTHING,
        where=(entry.place,),
        fix="take the statistics over real positions only, or normalise over features"
        if statistics
        else "set padded positions to zero before this operation",
        trials=() if statistics else (Trial("zero_padding", (entry.key,)),),
    )


def _is_elsewhere(entry: Entry, attention: AttentionSites) -> bool:
    """Outside attention over positions; a site over blocks of them does not count as such."""
    if entry.way is Way.OTHER:
        return True
    return entry.way is Way.ATTENTION and not any(site.aligned for site in attention.sites if site.key == entry.site)


def _where(entry: Entry) -> str:
    return "outside attention" if entry.way is Way.OTHER else "through attention over blocks"
