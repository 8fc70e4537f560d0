"""Masks hide every key from real tokens: attention adds nothing, or an average of everything.

What it looks at
    All masks of an attention site together, head by head: whether a sample is left whose real queries see no key.

Why it matters
    With a finite fill the softmax over equal scores is uniform, padding included; with −inf it is NaN. Either way the
    sentence is not read. Two masks that are each right can hide everything between them.

What you see
    Attention maps that are uniform as soon as a batch has padding; NaN for some batches.

How to fix it
    Combine masks as what may be seen, and look at what is left::

        visible = keep[:, None, None, :] & allowed          # and, on "may be seen"
        assert visible.any(-1)[keep].all()

When it does not apply
    Samples that are nothing but padding (fully-padded-row-nan); a mask that is read the wrong way round
    (padding-mask-inverted).

Where it points
    The operations that hide.

References
    PyTorch, `torch.nn.functional.softmax`: a row of −inf is NaN.
"""

from __future__ import annotations

from encdoctor.evidence.attention import AttentionSites, Covers
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("MSK021", "all-keys-masked", Severity.ERROR)
EVERY_QUERY_SEES = Limit(0.0, "samples whose real tokens see no key", "a real token is a key that every query may see")


def check(attention: AttentionSites) -> Verdict:
    if not attention.sites:
        return NotApplicable(attention.why)
    inverted = {Covers.REAL_KEYS, Covers.PADDED_ROWS}
    blind = [s for s in attention.sites if s.blind_samples and not inverted & {m.covers for m in s.masks}]
    if not blind:
        return Passed()
    most = max(site.blind_samples for site in blind)
    masks = [(site, mask) for site in blind for mask in site.masks if mask.covers is not Covers.NOTHING]
    return Suspect(
        RULE,
        message=f"every key is hidden from the real tokens of {most} {'samples' if most > 1 else 'sample'}",
        cause=f"at {len(blind)} of {len(attention.sites)} attention sites the masks together hide all keys",
        measured=float(most),
        limit=EVERY_QUERY_SEES,
        where=tuple(dict.fromkeys(place for site, mask in reversed(masks) for place in site.made(mask))),
        fix="combine masks with and on what may be seen, or with or on what is hidden",
        trials=(Trial("mask_instead", tuple(mask.key for _, mask in masks)),),
    )
