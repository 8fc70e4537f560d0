"""The padding mask belongs to another sample, or has slipped along the keys.

What it looks at
    The mask at each attention site, head by head: whose padding it hides. Which sample a row of scores belongs to,
    where a [CLS] token stands among the keys, and how many frames a sentence has behind a strided stem is measured by
    changing contents, not read off the shapes.

Why it matters
    Every shape fits and no error is raised, but real tokens are hidden and padding is read: too much in one sample, too
    little in the next.

What you see
    Fine on batches of equal lengths, wrong on ragged ones; results that depend on the order of the batch.

How to fix it
    Lay the mask out as the scores are. Scores folded to (B·H, S, S) run through the heads first, so each sample's mask
    is repeated H times in a row::

        mask = pad[:, None, :].repeat(H, 1, 1)               # sample 0, sample 1, …: wrong
        mask = pad[:, None, :].repeat_interleave(H, dim=0)   # H times sample 0, H times sample 1, …

    A token that is put in front of the sentence needs an entry in front of the mask; a strided convolution needs the
    mask of whole windows.

When it does not apply
    There is no mask, or its keys are no positions of the input.

Where it points
    The lines that make the mask, the latest first, then the one that applies it.

References
    PyTorch, `torch.nn.MultiheadAttention`: a 3-D `attn_mask` is (N·num_heads, L, S), sample by sample.
"""

from __future__ import annotations

from encdoctor.evidence.attention import AttentionSites, Covers, MaskAt, Site
from encdoctor.evidence.influence import PaddingInfluence
from encdoctor.limits import PADDING_MOVES_NOTHING
from encdoctor.model import Limit, NotApplicable, Passed, Place, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("MSK004", "padding-mask-misaligned", Severity.ERROR)
NO_SLIP = Limit(0.0, "keys by which the mask is off", "a key that is real and hidden can be read by nobody")


def check(padding: PaddingInfluence, attention: AttentionSites) -> Verdict:
    if not padding.measured:
        return NotApplicable(padding.why)
    seeing = [site for site in attention.sites if not site.blind_samples and not site.hides_padding()]
    masks = [(site, mask) for site in seeing for mask in site.masks]
    wrong = [(site, mask) for site, mask in masks if _is_wrong(site, mask, padding.leaks)]
    wrong = wrong or [(site, mask) for site, mask in masks if padding.leaks and _is_unlike(site, mask)]
    if not wrong:
        return Passed(padding.on_padding, "every mask hides the padding of its own sample")
    first = wrong[0][1]
    return Suspect(
        RULE,
        message=_message(first),
        cause=f"at {len(wrong)} of {len(attention.sites)} attention sites the mask hides other keys than padding",
        measured=padding.on_padding if padding.leaks else float(abs(first.offset)),
        limit=PADDING_MOVES_NOTHING if padding.leaks else NO_SLIP,
        where=tuple(dict.fromkeys(_places(wrong))),
        fix=_fix(first),
        trials=(Trial("mask_instead", tuple(mask.key for _, mask in wrong)),),
    )


def _is_wrong(site: Site, mask: MaskAt, leaks: bool) -> bool:
    if mask.covers is Covers.OTHER_SAMPLE:
        return leaks
    # a mask that hides too much leaks nothing; behind a stem that is a matter of taste
    return mask.covers is Covers.SHIFTED and (leaks or site.own_positions)


def _is_unlike(site: Site, mask: MaskAt) -> bool:
    """A mask made from the caller's that is nobody's padding, where padding is read."""
    return mask.covers is Covers.OTHER and mask.from_mask and not mask.grows and site.aligned and site.on_padding > 0


def _places(wrong: list[tuple[Site, MaskAt]]) -> list[Place]:
    return [place for site, mask in wrong for place in site.made(mask)]


def _message(mask: MaskAt) -> str:
    if mask.covers is Covers.OTHER_SAMPLE:
        return "heads attend under the padding mask of another sample"
    if mask.covers is Covers.OTHER:
        return "the mask hides something else than the padding"
    return f"the padding mask is off by {abs(mask.offset)} {'keys' if abs(mask.offset) > 1 else 'key'}"


def _fix(mask: MaskAt) -> str:
    if mask.covers is Covers.OTHER_SAMPLE:
        return "repeat each sample's mask once a head in the order in which samples and heads are folded"
    return "give the mask an entry for every key, at the place where that key stands"
