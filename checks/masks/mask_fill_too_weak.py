"""The mask's fill value is too weak: padding keeps some weight.

What it looks at
    The value that hidden scores get, or have added, at each site, and the weight that padding keeps after the softmax.
    Against scores near 0 a key filled with f keeps a weight of about e^f.

Why it matters
    The leak is small on a fresh model and grows with the scores in training: −10 is nothing against scores of 30. A
    fill of 0 or 1e-9 hides nothing at all.

What you see
    Results depend slightly on padding, more so the longer the model was trained.

How to fix it
    Use the smallest number the dtype has, before the softmax::

        scores = scores.masked_fill(~keep, torch.finfo(scores.dtype).min)

    Multiplying scores by the mask gives 0, which is an ordinary score, not a hidden one.

When it does not apply
    −1e4, −1e9 or finfo.min in float32 leave exactly 0.

Where it points
    The line that fills, or that makes the additive mask where it is the caller's.

References
    e^−104 is 0 in float32: any fill 104 below the largest score is exact there.
"""

from __future__ import annotations

import math

from encdoctor.evidence.attention import AttentionSites, Covers, MaskAt, Site
from encdoctor.evidence.influence import PaddingInfluence
from encdoctor.limits import PADDING_MOVES_NOTHING
from encdoctor.model import NotApplicable, Passed, Place, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("MSK006", "mask-fill-too-weak", Severity.WARNING)


def check(padding: PaddingInfluence, attention: AttentionSites) -> Verdict:
    if not padding.measured:
        return NotApplicable(padding.why)
    sites = [site for site in attention.sites if site.on_padding > 0 and not site.blind_samples]
    weak = [(site, mask) for site in sites for mask in _hiding(site)]
    if not weak or not padding.leaks:
        return Passed(padding.on_padding)
    fill = max(mask.fill for _, mask in weak)
    share = max(site.on_padding for site, _ in weak)
    return Suspect(
        RULE,
        message=f"masked keys are filled with {fill:.3g}: padding keeps up to {share:.2g} of the attention",
        cause=f"against scores near 0 a fill of {fill:.3g} leaves a weight of about e^{fill:.3g} = {_exp(fill):.2g}",
        measured=padding.on_padding,
        limit=PADDING_MOVES_NOTHING,
        where=tuple(place for site, mask in weak for place in _places(site, mask)),
        fix="fill with torch.finfo(scores.dtype).min, before the softmax",
        trials=(Trial("mask_instead", tuple(mask.key for _, mask in weak)),),
    )


def _hiding(site: Site) -> list[MaskAt]:
    """Masks before the softmax that mean the padded keys but leave them in sight."""
    return [m for m in site.masks if m.covers is Covers.PADDED_KEYS and not m.grows]


def _places(site: Site, mask: MaskAt) -> tuple[Place, ...]:
    applied = site.place if site.foreign else mask.place
    return (*mask.history[:1], applied) if mask.how == "add" else (applied,)


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))
