"""The mask has too few or too many axes for the scores, and broadcasting hides it or crashes.

What it looks at
    The encoder is called with batch and length different, and with batch equal to length. A (B, S) mask meets scores
    (B, H, S, S) only where B happens to equal S, or is 1, and then means something else. At each site the number of
    axes of the scores is compared before and after masking.

Why it matters
    It works in the notebook, with one sentence or a square batch, and crashes or goes silently wrong in use.

What you see
    "The size of tensor a must match the size of tensor b"; "The shape of the 2D attn_mask is … but should be …";
    outputs with an axis too many; right with batch 1 only.

How to fix it
    Give the mask the axes of the scores::

        scores.masked_fill(~keep[:, None, None, :], minimum)   # (B, 1, 1, S) against (B, H, S, S)

    In torch's modules (B, S) masks go to `key_padding_mask`, (S, S) masks to `attn_mask`.

When it does not apply
    There is no mask.

Where it points
    The line that raised, or the operation that masks.

References
    NumPy broadcasting rules: axes are aligned from the right.
"""

from __future__ import annotations

from encdoctor.contract import CallContract
from encdoctor.evidence.attention import AttentionSites
from encdoctor.evidence.influence import PaddingInfluence
from encdoctor.evidence.runs import ForwardRuns, Raised
from encdoctor.limits import EVERY_CALL_RUNS, PADDING_MOVES_NOTHING
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Trial, Undecided, Verdict

RULE = Rule("MSK010", "mask-rank-broadcast", Severity.WARNING)
AXES = Limit(0, "axes of the scores added by masking", "masking changes values, never the number of axes")


def check(
    contract: CallContract, runs: ForwardRuns, padding: PaddingInfluence | None, attention: AttentionSites | None
) -> Verdict:
    if contract.mask is None:
        return NotApplicable("the encoder is not told what is padding")
    raised = _raised_by_mask(contract, runs)
    if raised is not None:
        return Suspect(
            RULE,
            message=f"a mask for {raised.situation} does not fit the scores: {raised.text}",
            cause="the mask is aligned with the scores from the right, and its axes are not theirs",
            measured=1.0,
            limit=EVERY_CALL_RUNS,
            where=raised.places,
            fix="give the mask the shape (B, 1, 1, S); torch's modules take (B, S) as key_padding_mask",
        )
    if attention is None or padding is None:
        return Undecided("the padded batch could not be run", "a forward that runs")
    grown = [(site, mask) for site in attention.sites for mask in site.masks if mask.grows and mask.from_mask]
    if grown:
        added = max(m.rank - m.score_rank for _, m in grown)
        return Suspect(
            RULE,
            message=f"masking turns scores with {grown[0][1].score_rank} axes into {grown[0][1].rank}",
            cause="the mask has more axes than the scores, which are repeated along the new ones",
            measured=float(max(added, 1)),
            limit=AXES,
            where=tuple(mask.place for _, mask in grown),
            fix="drop the axis that was added twice: (B, 1, 1, S) against (B, H, S, S)",
            # behind the first layer scores have the additional axis already, and the same mask fits by mistake
            trials=(
                Trial("mask_instead", tuple(m.key for site in attention.sites for m in site.masks if m.from_mask)),
            ),
        )
    square = runs.named("square")
    if square is not None and square.leak > PADDING_MOVES_NOTHING.value and padding.measured and not padding.leaks:
        return Suspect(
            RULE,
            message="where batch and length are equal, the mask means something else: padding reaches real tokens",
            cause="a (B, S) mask is taken for (S, S) where the two have the same shape",
            measured=square.leak,
            limit=PADDING_MOVES_NOTHING,
            where=tuple(mask.place for site in attention.sites for mask in site.masks),
            fix="give the mask the shape (B, 1, 1, S) whatever the batch",
        )
    return Passed()


def _raised_by_mask(contract: CallContract, runs: ForwardRuns) -> Raised | None:
    """What a padded call raised over shapes, where a call without mask, or a square batch, goes through."""
    padded, plain, square = (runs.named(name) for name in ("padded", "plain", "square"))
    if padded is None or padded.raised is None or padded.raised.rule != RULE.slug:
        return None
    others = [tried for tried in (plain, square) if tried is not None and tried.raised is None]
    return padded.raised if others else None
