"""A causal mask hides the right context from an encoder that is not meant to be causal.

What it looks at
    Each token in turn is replaced, without any padding. If no output before the token moves by a single bit, while
    outputs behind it do, information flows one way only. Attention sites tell which mask does it.

Why it matters
    Half of the context is gone. The first token sees only itself, so a [CLS] vector taken there is the same for every
    sentence.

What you see
    Mediocre quality; two different documents with exactly the same first vector; masked-token accuracy that is low at
    the beginning of sentences.

How to fix it
    Leave the triangle out, or pass `is_causal=False`::

        scores = scores.masked_fill(~keep[:, None, None, :], minimum)     # and no tril/triu

When it does not apply
    The author declares it: an option, an argument, a docstring that says causal or autoregressive; recurrent and
    causal-convolution parts have no mask. In an installed package it is a note: CLIP's text tower is causal and says
    so nowhere.

Where it points
    The operation that hides later keys.

References
    Devlin et al. 2019 (BERT), section 1: why encoders are bidirectional.
"""

from __future__ import annotations

from encdoctor.evidence.attention import AttentionSites, Covers, Site, UnmaskedSites
from encdoctor.evidence.influence import InfluenceMatrix
from encdoctor.intent import Intent, What
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Trial, Undecided, Verdict

RULE = Rule("MSK014", "causal-mask-on-encoder", Severity.WARNING)
BOTH_WAYS = Limit(
    0.0,
    "largest influence of a later token on an earlier output",
    "in a bidirectional encoder every token sees later ones; exactly 0 is a mask",
)


def check(matrix: InfluenceMatrix, unmasked: UnmaskedSites, attention: AttentionSites, intent: Intent) -> Verdict:
    declared = intent.of(What.CAUSAL)
    if declared is not None and declared.value:
        return NotApplicable(f"declared causal: {declared.source}")
    future = matrix.future()
    if future is None:
        return NotApplicable(matrix.why or "outputs and inputs do not correspond one to one")
    later, earlier = future
    if later > 0 or earlier == 0:
        return Passed(later)
    sites = unmasked.sites or attention.sites
    masks = [(site, m) for site in sites for m in site.masks if m.covers is Covers.FUTURE]
    if not masks and not any(_looks_causal(site) for site in sites):
        return Undecided("no output sees a later token, but no causal mask was seen in the trace", "--intent causal")
    return Suspect(
        RULE,
        message="no output sees a token to its right: attention is causal, and nothing says it should be",
        cause=f"{len(masks) or len(sites)} attention sites hide the keys behind each query",
        measured=later,
        limit=BOTH_WAYS,
        where=tuple(site.place if site.foreign else mask.place for site, mask in masks)
        or tuple(site.place for site in sites),
        fix="leave the causal triangle out, or declare it: --intent causal",
        trials=(Trial("mask_instead", tuple(mask.key for _, mask in masks)),) if masks else (),
        severity=Severity.NOTE if intent.installed else None,
    )


def _looks_causal(site: Site) -> bool:
    return site.queries == site.keys and site.on_future == 0
