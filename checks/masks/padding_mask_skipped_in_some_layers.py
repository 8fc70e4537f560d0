"""Some layers apply the padding mask, others do not.

What it looks at
    The weight that real queries give to padded keys at every attention site, where padding's content moves real
    outputs. Some sites hide padding; at others no mask arrives.

Why it matters
    One unmasked layer is enough to carry padding into every token, and the layers behind it hand it on.

What you see
    Results that depend slightly on the batch, although the mask is visibly used.

How to fix it
    Hand the mask to every layer::

        for layer in self.layers:
            x = layer(x, keep)

    and let a block that returns a state return the mask as well.

When it does not apply
    There is no mask; no site masks (the mask is ignored altogether); padding gets in before attention, as in an encoder
    whose mask ends where the sequence is shortened.

Where it points
    The call that does not hand the mask on, else the scores that are left unmasked.

References
    Vaswani et al. 2017, section 3.2.3.
"""

from __future__ import annotations

from encdoctor.evidence.attention import AttentionSites, Site
from encdoctor.evidence.influence import PaddingInfluence
from encdoctor.evidence.leaks import PaddingEntry
from encdoctor.limits import PADDING_MOVES_NOTHING
from encdoctor.model import NotApplicable, Passed, Place, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("MSK005", "padding-mask-skipped-in-some-layers", Severity.ERROR)


def check(padding: PaddingInfluence, attention: AttentionSites, entering: PaddingEntry) -> Verdict:
    if not padding.measured:
        return NotApplicable(padding.why)
    if not padding.leaks:
        return Passed(padding.on_padding)
    bare = [site for site in attention.sites if site.on_padding > 0 and not site.reads_mask()]
    masked = [site for site in attention.sites if site.hides_padding() and site.on_padding == 0]
    if not bare or not masked:
        return Passed(padding.on_padding, "no site lacks a mask that others have")
    if entering.entry is not None and entering.entry.site not in {site.key for site in bare}:
        return Passed(padding.on_padding, "padding gets in before it meets a site without a mask")
    return Suspect(
        RULE,
        message=f"{len(bare)} of {len(attention.sites)} attention sites do not mask padding, the others do",
        cause=f"unmasked: {', '.join(dict.fromkeys(site.module for site in bare))}",
        measured=padding.on_padding,
        limit=PADDING_MOVES_NOTHING,
        where=tuple(dict.fromkeys(_places(bare))),
        fix="hand the padding mask to every layer",
        trials=(Trial("mask_keys", tuple(site.key for site in bare)),),
    )


def _places(bare: list[Site]) -> list[Place]:
    lost = [place for site in bare for place in site.mask_lost_at]
    return [*lost, *(site.scores_place for site in bare), *(site.place for site in bare)]
