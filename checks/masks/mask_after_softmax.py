"""Padding is masked after the softmax: it takes its share of the attention and then throws it away.

What it looks at
    Where a mask sets weights of padded keys to zero behind the softmax, and none hides the scores before it, padding's
    content is replaced. It moves real outputs, as the softmax has divided by padding's exponentials too.

Why it matters
    The remaining weights no longer sum to 1, and by how much they fall short depends on what stands in the padding.

What you see
    Outputs that shrink with the amount of padding; the same sentence gets another vector in another batch.

How to fix it
    Hide the scores before the softmax::

        weights = scores.softmax(-1) * keep[:, None, None, :]                                      # too late
        weights = scores.masked_fill(~keep[:, None, None, :], torch.finfo(scores.dtype).min).softmax(-1)

When it does not apply
    The weights are divided by their new sum afterwards; scores are masked as well.

Where it points
    The operation that masks the weights.

References
    Vaswani et al. 2017, section 3.2.3: illegal connections are set to −∞ in the input of the softmax.
"""

from __future__ import annotations

from encdoctor.evidence.attention import AttentionSites, Covers, MaskAt, Site
from encdoctor.evidence.influence import PaddingInfluence
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("MSK007", "mask-after-softmax", Severity.ERROR)
RENORMALISED = Limit(
    1e-9,
    "relative change of real outputs when padding is replaced",
    "weights that are divided by their sum again are right up to rounding, which stays below 1e-15 in float64",
)


def check(padding: PaddingInfluence, attention: AttentionSites) -> Verdict:
    if not padding.measured:
        return NotApplicable(padding.why)
    late = [(site, mask) for site in attention.sites if site.on_padding > 0 for mask in _late(site)]
    if not late or not padding.leaks or padding.on_padding <= RENORMALISED.value:
        return Passed(padding.on_padding)
    share = max(site.on_padding for site, _ in late)
    return Suspect(
        RULE,
        message=f"padding is masked after the softmax, where it already has up to {share:.2g} of the attention",
        cause="the softmax divides by padding's exponentials; what is left of the weights does not sum to 1",
        measured=padding.on_padding,
        limit=RENORMALISED,
        where=tuple(site.applied(mask) for site, mask in late),
        fix="fill the scores of padded keys with the dtype's minimum before the softmax",
        trials=(Trial("mask_keys", tuple(site.key for site, _ in late)),),
    )


def _late(site: Site) -> list[MaskAt]:
    return [m for m in site.after_softmax if m.covers is Covers.PADDED_KEYS and not site.hides_padding()]
