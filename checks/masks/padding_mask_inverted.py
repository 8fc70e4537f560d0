"""Attention reads padding instead of text: the mask is taken the wrong way round.

What it looks at
    Real content and padding are replaced in turn, and the outputs of real tokens are watched. Under an inverted mask
    padding moves them, and other real tokens do not. The mask at each attention site is compared with the padding.

Why it matters
    The encoder sees nothing of the sentence but, through residuals, each token itself. Training stalls at what a
    bag of words can do, without any error.

What you see
    The loss falls a little and stops; the output depends on how much padding there is; attention maps point at
    padding.

How to fix it
    Conventions differ: `key_padding_mask` of torch drops where True, `attention_mask` of Hugging Face keeps where 1.
    Convert once, at the border::

        hidden = encoder(x, src_key_padding_mask=attention_mask == 0)   # not attention_mask.bool()
        scores = scores.masked_fill(~keep, minimum)                      # not masked_fill(keep, minimum)

When it does not apply
    There is no mask, or nobody says what True means in it: then the reading that works is adopted.

Where it points
    The operation that applies the mask, or the call that hands it to a torch module.

References
    PyTorch, `torch.nn.functional.scaled_dot_product_attention` and `torch.nn.MultiheadAttention`, which use opposite
    conventions for boolean masks.
"""

from __future__ import annotations

from encdoctor.contract import CallContract, MaskMeaning
from encdoctor.evidence.attention import AttentionSites, Covers, MaskAt, Site
from encdoctor.evidence.influence import PaddingInfluence
from encdoctor.limits import PADDING_MOVES_NOTHING
from encdoctor.model import NotApplicable, Passed, Place, Rule, Severity, Suspect, Trial, Undecided, Verdict

RULE = Rule("MSK002", "padding-mask-inverted", Severity.ERROR)


def check(contract: CallContract, padding: PaddingInfluence, attention: AttentionSites) -> Verdict:
    if not padding.measured or contract.mask is None:
        return NotApplicable(padding.why)
    if not padding.leaks:
        return Passed(padding.on_padding)
    inverted = [(site, mask) for site in attention.sites for mask in site.masks if mask.covers is Covers.REAL_KEYS]
    if not inverted:
        return Passed(padding.on_padding, "no site hides the real keys")
    if contract.mask.true is MaskMeaning.UNKNOWN:
        return Undecided("nobody says what True means in the mask", "--mask-true keep or --mask-true drop")
    return Suspect(
        RULE,
        message="attention sees padding instead of text: the mask is read the wrong way round",
        cause=f"at {len(inverted)} of {len(attention.sites)} attention sites the mask hides exactly the real keys",
        measured=padding.on_padding,
        limit=PADDING_MOVES_NOTHING,
        where=tuple(_place(site, mask) for site, mask in inverted),
        fix="negate the mask where it is applied, or pass the opposite",
        trials=(Trial("mask_instead", tuple(mask.key for _, mask in inverted)), Trial("flip_mask")),
    )


def _place(site: Site, mask: MaskAt) -> Place:
    return site.place if site.foreign else mask.place
