"""What batches of one, sequences of one and other small sizes do."""

from __future__ import annotations

from dataclasses import dataclass

from encdoctor.evidence.runs import Raised
from encdoctor.model import Place


@dataclass(frozen=True)
class Edge:
    """One small call. `raised` is what it raised; `shape` what it gave in place of `expected`, where they differ.

    `deliberate` tells that the exception was raised on purpose, by a raise or an assert of the target. `too_short`
    that a convolution or pooling refused fewer positions than its kernel. `squeezes` are squeezes without an axis that
    dropped an axis of this call, with their places in `squeezed_at`.
    """

    batch: int
    length: int
    raised: Raised | None
    shape: tuple[int, ...] = ()
    expected: tuple[int, ...] = ()
    deliberate: bool = False
    too_short: bool = False
    squeezes: tuple[str, ...] = ()
    squeezed_at: tuple[Place, ...] = ()

    @property
    def fails(self) -> bool:
        return self.raised is not None or self.shape != self.expected

    @property
    def named(self) -> str:
        return f"batch {self.batch}, length {self.length}" if self.length else f"batch {self.batch}"


@dataclass(frozen=True)
class EdgeShapes:
    """The calls that fail or give another shape, the smallest first, and how many were made."""

    failing: tuple[Edge, ...]
    tried: int
    why: str = ""


@dataclass(frozen=True)
class TrimmedOutput:
    """The number of output positions for a batch in which every sample is padded: in train, in eval, without a mask.

    `at` is where eval cuts positions off; `inside_torch` that this is torch's own nested-tensor path.
    """

    measured: bool
    why: str = ""
    train: int = 0
    eval: int = 0
    length: int = 0
    at: tuple[Place, ...] = ()
    encoders: tuple[str, ...] = ()
    inside_torch: bool = False
