"""What half precision and empty rows do to the numbers."""

from __future__ import annotations

from dataclasses import dataclass

from encdoctor.evidence.runs import Raised
from encdoctor.model import Place


@dataclass(frozen=True)
class FirstBad:
    """The first operation whose output is not a number or infinite while its inputs are finite.

    `masking` tells that it takes part in masking scores: it reads the mask, or fills with a constant that is meant to
    hide. `constant` is that constant, where the dtype cannot hold it.
    """

    key: str
    operation: str
    place: Place
    foreign: bool
    value: str
    masking: bool
    constant: float | None = None
    defined_at: Place | None = None


@dataclass(frozen=True)
class HalfRun:
    """The padded batch in one precision. `how` is "float16", "bfloat16" or "autocast bfloat16", …

    `bad_share` is the share of real outputs that are not finite; `error` the largest difference from float32,
    relative, where all are finite. `clashes` tells that what was raised is about two dtypes; then `widened` says where
    the wider one was made and where it met the other, `unregistered` that the model holds it without registering it,
    `fused` that torch's fast path alone raises.
    """

    how: str
    dtype: str
    raised: Raised | None
    bad_share: float
    error: float
    first: FirstBad | None
    clashes: bool = False
    widened: tuple[Place, ...] = ()
    unregistered: bool = False
    fused: bool = False


@dataclass(frozen=True)
class HalfPrecision:
    """The half-precision runs; `finite32` tells that the float32 run was finite."""

    runs: tuple[HalfRun, ...]
    finite32: bool


@dataclass(frozen=True)
class EmptyRow:
    """A batch in which one sample is nothing but padding.

    `own_row` tells that the empty sample's own outputs are not finite, `others` that a real sample's are;
    `bad_gradients` names parameters whose gradient is not finite though the loss reads real positions only. `first` is
    the operation where it starts, `backward` the same for gradients.
    """

    measured: bool
    why: str = ""
    own_row: bool = False
    others: bool = False
    bad_gradients: tuple[str, ...] = ()
    parameters: int = 0
    first: FirstBad | None = None
    raised: Raised | None = None
