"""How large attention scores are made, and whether the weights behind them are shares of one."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from encdoctor.model import Place


@dataclass(frozen=True)
class Scaling:
    """One multiplication of q, k or their product by a plain number. `by_torch`: inside fused attention."""

    factor: float
    place: Place
    by_torch: bool = False


@dataclass(frozen=True)
class ScoreSite:
    """One softmax over q·kᵀ.

    `scale` is score/(q·k), read off the operations between the projections and the softmax and confirmed by their
    tensors; None where that failed (`why`). `learned` tells that a parameter scales too, `normalised` that q or k have
    constant length. `q`, `k`, `v` are root mean squares before scaling, `spread` the standard deviation of the scores.
    `after` is a plain factor on the weights behind the softmax. `varies`: the scale changes with the length.
    """

    key: str
    operand: str
    place: Place
    scores_place: Place
    foreign: bool
    heads: int
    head_dim: int
    scale: float | None
    why: str
    scalings: tuple[Scaling, ...]
    learned: bool
    normalised: bool
    q: float
    k: float
    v: float
    spread: float
    after: float = 1.0
    varies: bool = False

    @property
    def predicted(self) -> float:
        """The scores' standard deviation for q and k of unit variance; 1 is what 1/√head_dim is for."""
        return abs(self.scale or 0.0) * sqrt(self.head_dim)

    @property
    def plain(self) -> bool:
        """Whether nothing but plain numbers decides how large the scores are, and nothing makes up for them."""
        excused = self.learned or self.normalised or self.varies or self.folded
        return self.scale is not None and not excused

    @property
    def scaled(self) -> bool:
        """Whether any plain number other than 1 scales."""
        return any(scaling.factor != 1.0 for scaling in self.scalings)

    @property
    def folded(self) -> bool:
        """Whether q and k are kept small against v by their weights, as T5 does instead of dividing."""
        return self.q * self.k < FOLDED * self.v**2 / sqrt(self.head_dim)


@dataclass(frozen=True)
class Scores:
    """All sites in the order they run. `declared` quotes where the source declares another scale (µP)."""

    sites: tuple[ScoreSite, ...]
    declared: str = ""


@dataclass(frozen=True)
class WeightRows:
    """What the attention weights sum to over the keys at one site, in eval and without padding.

    `typical` is the median, `worst` the sum farthest from 1. `axis` names the axis that does sum to 1 where it is
    another. `factor` is the plain factor behind the softmax, `twice` the line of a second softmax, `altered` that of
    the last operation between softmax and values that is not a view; `gated` tells that something learned, or a
    selection, comes between. `other_axes` are those that the softmax could run over instead, the likeliest first.
    """

    key: str
    module: str
    place: Place
    foreign: bool
    typical: float
    worst: float
    axis: str
    factor: float
    gated: bool
    twice: Place | None = None
    altered: Place | None = None
    other_axes: tuple[int, ...] = ()


@dataclass(frozen=True)
class PoolWeights:
    """A softmax over an axis on which it cannot choose, whose weights then sum over the sequence.

    `size` is the length of the softmax's axis, `axis` says which it is, `total` what the weights sum to.
    """

    key: str
    place: Place
    foreign: bool
    size: int
    axis: str
    total: float
    other_axes: tuple[int, ...] = ()


@dataclass(frozen=True)
class AttentionWeights:
    """Weights of all sites and pools."""

    sites: tuple[WeightRows, ...]
    pools: tuple[PoolWeights, ...]


# T5 initialises q by a further head_dim^-½. Twice that is still folded; nn.Linear and Xavier give q, k and v alike.
FOLDED = 2.0
