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
    starts: Place | None = None


@dataclass(frozen=True)
class ZeroPadding:
    """A batch whose padding is what it usually is: zeros, or the padding id.

    `bad` tells that real outputs are not finite, while they are without padding; `first` is the operation where that
    starts. `other_content` tells that other contents leave them finite.
    """

    measured: bool
    why: str = ""
    bad: bool = False
    first: FirstBad | None = None
    other_content: bool = False


@dataclass(frozen=True)
class Variant:
    """A batch in which padding gets in, though it does not in the usual one.

    `name` says what is special about it, `change` how far real outputs move with padding's content there; `places` are
    those of the attention sites that read padding, `keys` their softmaxes.
    """

    name: str
    change: float
    places: tuple[Place, ...]
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Variants:
    """Padding's influence alone, in equal lengths, behind more of it, and in training with gradients."""

    measured: bool
    why: str = ""
    leaking: tuple[Variant, ...] = ()


@dataclass(frozen=True)
class StaleMask:
    """A batch after another one with other lengths, against the same batch first on a fresh copy.

    `change` is relative; `raised` is what the later call raised though it runs on a fresh copy. `kept` lists where
    forward sets what it keeps.
    """

    measured: bool
    why: str = ""
    change: float = 0.0
    raised: Raised | None = None
    kept: tuple[Place, ...] = ()
