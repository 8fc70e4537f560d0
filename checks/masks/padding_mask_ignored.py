"""The padding mask does not reach attention: real tokens read padding.

What it looks at
    Padding is replaced by other content in a batch of unequal lengths. In a sound encoder no output of a real token
    moves by a single bit. Where one does, the scores of every attention site are searched for the mask.

Why it matters
    The same sentence gets another vector in another batch. The model learns from noise, results cannot be repeated,
    and what was measured with one batch size does not hold with the next.

What you see
    Different results for one sentence alone and in a batch; results that change with the padding id or amount; a mask
    that can be changed at will without any effect.

How to fix it
    Hide padded keys at every attention site, before the softmax::

        scores = q @ k.transpose(-2, -1) * scale
        scores = scores.masked_fill(~keep[:, None, None, :], torch.finfo(scores.dtype).min)   # (B, 1, 1, S)
        weights = scores.softmax(-1)

    and hand the mask on through every layer. `masked_fill` without an underscore returns a new tensor: use it.

When it does not apply
    The encoder takes no mask, no lengths and no pad id (a ViT, a Fourier mixer).

Where it points
    The call that does not hand the mask on, where its caller has it; else the line that makes the scores, or the call
    into attention where that lies inside a torch module.

References
    Vaswani et al. 2017, section 3.2.3; PyTorch, `torch.nn.MultiheadAttention`, `key_padding_mask`.
"""

from __future__ import annotations

from encdoctor.contract import CallContract, MaskMeaning
from encdoctor.evidence.attention import AttentionSites, Covers, MaskAt, Site
from encdoctor.evidence.influence import PaddingInfluence
from encdoctor.intent import Intent
from encdoctor.limits import PADDING_MOVES_NOTHING
from encdoctor.model import NotApplicable, Passed, Place, Rule, Severity, Suspect, Trial, Undecided, Verdict

RULE = Rule("MSK001", "padding-mask-ignored", Severity.ERROR)


def check(contract: CallContract, padding: PaddingInfluence, attention: AttentionSites, intent: Intent) -> Verdict:
    if not padding.measured:
        return NotApplicable(padding.why)
    if not padding.leaks:
        return Passed(padding.on_padding)
    if not attention.understood:
        return Undecided(
            f"padding moves real outputs by {padding.on_padding:.2g}, but no attention was recognised: {attention.why}",
            "look whether the encoder is meant to mix padding in (a mixer without attention)",
        )
    blind = [site for site in attention.sites if not _reads_mask(site)]
    if len(blind) < len(attention.sites) or any(site.over_batch for site in blind):
        return Passed(padding.on_padding, "the mask reaches attention; what is wrong with it is another rule's to say")
    empty = [m for site in blind for m in site.masks if m.from_mask]
    if intent.installed and contract.mask is not None and contract.mask.true is MaskMeaning.UNKNOWN:
        return Undecided(f"nothing says that `{contract.mask.argument}` is about padding", "--mask-arg, or --mask-true")
    return Suspect(
        RULE,
        message="attention reads padding: no site masks it",
        cause=_cause(contract, len(blind), bool(empty)),
        measured=padding.on_padding,
        limit=PADDING_MOVES_NOTHING,
        where=tuple(dict.fromkeys(_places(blind, empty))),
        fix="fill the scores of padded keys with the dtype's minimum before the softmax, at every site",
        trials=(Trial("mask_keys", tuple(site.key for site in blind)),),
    )


def _reads_mask(site: Site) -> bool:
    """Whether any mask made from the caller's mask hides anything at the site."""
    masks = (*site.masks, *site.after_softmax)
    return any(m.covers is not Covers.NOTHING and (m.from_mask or m.covers is Covers.PADDED_KEYS) for m in masks)


def _cause(contract: CallContract, sites: int, empty: bool) -> str:
    source = f"`{contract.mask.argument}`" if contract.mask and contract.mask.argument else "the ids"
    if empty:
        return f"the mask that is made from {source} hides nothing: no padding is recognised"
    return f"the mask from {source} reaches none of the {sites} attention sites"


def _places(blind: list[Site], empty: list[MaskAt]) -> list[Place]:
    """Where an empty mask is made, where the mask is not handed on, where scores are made without one."""
    made = [place for mask in empty for place in reversed(mask.history)]
    lost = [place for site in blind for place in reversed(site.mask_lost_at)]
    return [*made, *lost, *(site.scores_place for site in blind), *(site.place for site in blind)]
