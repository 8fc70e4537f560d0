"""What becomes of the mask when it is passed in other ways, and of what stands in the padding."""

from __future__ import annotations

from dataclasses import dataclass

from encdoctor.evidence.numerics import FirstBad
from encdoctor.evidence.runs import Raised
from encdoctor.model import Place


@dataclass(frozen=True)
class MaskDtype:
    """The usual mask in another dtype.

    `change` is how far real outputs move, relative; `raised` what was raised instead. `added` lists the places where
    such a mask is added to scores, `by_torch` tells that torch's own attention does so, which is its contract.
    """

    dtype: str
    change: float
    raised: Raised | None = None
    added: tuple[Place, ...] = ()
    keys: tuple[str, ...] = ()
    by_torch: bool = False


@dataclass(frozen=True)
class MaskDtypes:
    """The same mask as bool, int64 and float of zeros and ones, in the model's own dtype."""

    measured: bool
    why: str = ""
    usual: str = ""
    tried: tuple[MaskDtype, ...] = ()


@dataclass(frozen=True)
class NoMask:
    """A call without a mask against one with a mask that keeps everything, on a batch without padding."""

    measured: bool
    why: str = ""
    change: float = 0.0
    change_own: float = 0.0
    entry: Place | None = None


@dataclass(frozen=True)
class ZeroPadding:
    """A batch whose padding is filled with zeros: the usual content. `bad` tells that real outputs are not finite.

    `bad_gradients` counts parameters whose gradient is not finite though the loss reads real positions only.
    """

    measured: bool
    why: str = ""
    bad: bool = False
    bad_gradients: int = 0
    first: FirstBad | None = None
