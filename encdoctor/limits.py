"""Bounds that several checks share, each with its reason. What only one check needs stands in that check."""

from __future__ import annotations

from encdoctor.model import Limit

PADDING_MOVES_NOTHING = Limit(
    1e-12,
    "relative change of real outputs when padding is replaced",
    "with equal shapes the same kernels run, and 75 of 75 healthy packages measured exactly 0; a maximum that is taken "
    "over padded keys too rounds in the 16th digit, and the smallest true leak known is 1e-8",
)

CONSTRUCTION = "relative change of earlier outputs when a later token is replaced"

HALF_MAX = Limit(65504.0, "absolute value", "the largest finite float16 (IEEE 754 binary16)")

CALLS_RAISING = "ordinary calls that raise"
BACKWARD_RAISING = "backward passes that raise"
# What hides other faults: once its fix is confirmed, checks go on with the mended model.
HIDING = {CALLS_RAISING, BACKWARD_RAISING}
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

ORDER_MATTERS = Limit(
    1e-10,
    "relative deviation from the permuted outputs",
    "without positions only the order of sums changes, which moves float64 by less than 1e-13; rotary or relative "
    "parts on near-zero fresh weights move outputs by 1e-4",
)
ROWS_ARE_EQUAL = Limit(
    1e-10, "relative difference between rows that hold the same sentence", "equal rows are the same computation"
)
BACKWARD_RUNS = Limit(0.0, BACKWARD_RAISING, "a model that is to be trained has to go backward")

SMALL_CALLS_RUN = Limit(
    0.0, "small calls that fail or lose an axis", "one sample and one position are legal sizes of a batch of sequences"
)
