"""Bounds that several checks share, each with its reason. What only one check needs stands in that check."""

from __future__ import annotations

from encdoctor.model import Limit

PADDING_MOVES_NOTHING = Limit(
    0.0,
    "relative change of real outputs when padding is replaced",
    "with equal shapes the same kernels run, so a masked key has weight 0 and changes no bit; "
    "75 of 75 healthy packages measured exactly 0",
)

CONSTRUCTION = "relative change of earlier outputs when a later token is replaced"

HALF_MAX = Limit(65504.0, "absolute value", "the largest finite float16 (IEEE 754 binary16)")

CALLS_RAISING = "ordinary calls that raise"
EVERY_CALL_RUNS = Limit(0.0, CALLS_RAISING, "a call that the contract promises has to go through")

POSITIONS_STAY_WHOLE = Limit(
    0.0,
    "relative change at other positions under identity attention",
    "with every weight matrix the identity, a position's content can reach no other: measured exactly 0 on 24 of 24 "
    "healthy packages with square attention",
)

SAMPLES_STAY_APART = Limit(
    0.0,
    "relative change of other samples when one sample's content is replaced",
    "with equal shapes the same kernels run, so what does not read another sample changes by no bit",
)
