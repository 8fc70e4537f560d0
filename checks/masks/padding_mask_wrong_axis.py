"""The padding mask blanks query rows instead of key columns.

What it looks at
    The mask at each attention site, as a matrix of queries by keys: padding has to vary along the keys. Where it varies
    along the queries, real tokens still read padding, and only the outputs at padding are touched.

Why it matters
    A transposed mask looks right in print, has the right shape wherever queries and keys are equally many, and hides
    nothing. Real tokens read padding, padded queries get uniform weights or NaN.

What you see
    Results depend on the batch; the mask seems to work when the padded rows are looked at.

How to fix it
    Put the sequence on the last axis::

        keep[:, None, None, :]    # (B, 1, 1, S): keys
        keep[:, None, :, None]    # (B, 1, S, 1): queries, wrong

    The second positional argument of `nn.TransformerEncoder` is the (S, S) mask; padding goes to
    `src_key_padding_mask=`.

When it does not apply
    Masks that hide padded keys as well as padded rows, (B, 1, S, S), are fine.

Where it points
    The line on which the mask's axes are laid out, then the operation that applies it.

References
    Vaswani et al. 2017, section 3.2.3: softmax runs over keys, so keys are what a mask removes.
"""

from __future__ import annotations

from encdoctor.evidence.attention import AttentionSites, Covers, MaskAt, Site
from encdoctor.evidence.influence import PaddingInfluence
from encdoctor.limits import PADDING_MOVES_NOTHING
from encdoctor.model import NotApplicable, Passed, Place, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("MSK003", "padding-mask-wrong-axis", Severity.ERROR)


def check(padding: PaddingInfluence, attention: AttentionSites) -> Verdict:
    if not padding.measured:
        return NotApplicable(padding.why)
    if not padding.leaks:
        return Passed(padding.on_padding)
    wrong = [
        (site, mask)
        for site in attention.sites
        if not site.hides_padding()
        for mask in site.masks
        if mask.covers is Covers.PADDED_ROWS
    ]
    if not wrong:
        return Passed(padding.on_padding, "no site hides query rows")
    return Suspect(
        RULE,
        message="the padding mask blanks query rows; keys of padding stay visible",
        cause=f"at {len(wrong)} of {len(attention.sites)} sites the mask varies along the queries, not the keys",
        measured=padding.on_padding,
        limit=PADDING_MOVES_NOTHING,
        where=tuple(dict.fromkeys(place for site, mask in wrong for place in _places(site, mask))),
        fix="give the mask the shape (B, 1, 1, S), so that the sequence lies on the axis of the keys",
        trials=(Trial("mask_instead", tuple(mask.key for _, mask in wrong)),),
    )


def _places(site: Site, mask: MaskAt) -> tuple[Place, ...]:
    applied = site.place if site.foreign else mask.place
    return (applied,) if mask.shaped is None else (mask.shaped, applied)
