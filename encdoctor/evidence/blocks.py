"""How an encoder is built up: its sublayers along the stream, what is added where, and which modules take part."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from encdoctor.model import Place


class Kind(StrEnum):
    """What a sublayer does."""

    ATTENTION = "attention"
    FEED_FORWARD = "feed-forward"
    OTHER = "other"


@dataclass(frozen=True)
class LinearPair:
    """Two linear maps in a row with nothing that is not affine between them; `widening` is inner over outer width."""

    module: str
    place: Place
    widening: float
    key: str


@dataclass(frozen=True)
class Sublayer:
    """One region of the stream in which something is computed: attention, feed-forward, or both in parallel.

    `layer` is the module that holds it; `places` say where its result is handed on, the likeliest first. `bypass`
    tells that elementwise operations alone lead around it (a residual, a gate), `expected` that one would: it stands
    between attention sites, or within a layer, keeps the shape, and is no cross-attention. `norm_before` tells that
    a norm stands in the branch before its first map, `norm_in_branch` after its last, `norm_on_stream` that its
    input is itself the output of a norm on the stream, which lies in the module `stream_norm`; `sum_in` is the module
    of the sum. `skips_over` tells that the sum joins a tensor from before
    another sublayer's residual. `coefficients` are the plain numbers on the skip and on the branch, the sizes typical
    root mean squares of the stream before and after and of the branch, `pairs` linear maps without anything between.
    """

    kind: Kind
    layer: str
    places: tuple[Place, ...]
    foreign: bool
    bypass: bool
    expected: bool
    norm_before: bool
    norm_in_branch: bool
    norm_on_stream: bool
    linears: int
    activations: int
    sites: int
    stream_norm: str = ""
    sum_in: str = ""
    skips_over: bool = False
    coefficients: tuple[float, float] = (1.0, 1.0)
    size_in: float = 0.0
    size_out: float = 0.0
    size_branch: float = 0.0
    pairs: tuple[LinearPair, ...] = ()


@dataclass(frozen=True)
class OnStream:
    """An operation that acts on the whole stream between sublayers: `kind` is "norm", "batch norm", "dropout"."""

    kind: str
    module: str
    place: Place
    foreign: bool


@dataclass(frozen=True)
class DeadSite:
    """Attention that is computed and does not reach the output; `after` is what the layer does instead."""

    module: str
    layer: str
    place: Place
    after: Place | None


@dataclass(frozen=True)
class Blocks:
    """The stream from the first sublayer to the output. `understood` is False, with `why`, where it was not seen.

    `final_norm` tells that a norm acts on the stream after its last sum; `final` is where the stream is handed on.
    `dead` are sites whose result does not reach the output. `dropouts` (in train mode) and `batch_norms` act on the
    stream as a whole; `across_samples` is how far other samples move in train mode when one is changed, measured only
    where there is batch norm. `sites` counts attention sites. `norm_keys` are the operations of the norms from the
    first attention on, with their statistics.
    """

    understood: bool
    why: str = ""
    sublayers: tuple[Sublayer, ...] = ()
    final_norm: bool = False
    final: tuple[Place, ...] = ()
    dead: tuple[DeadSite, ...] = ()
    dropouts: tuple[OnStream, ...] = ()
    batch_norms: tuple[OnStream, ...] = ()
    across_samples: float = 0.0
    sites: int = 0
    norm_keys: tuple[str, ...] = ()

    def residual(self) -> tuple[Sublayer, ...]:
        """Sublayers with a way around them."""
        return tuple(s for s in self.sublayers if s.bypass)

    @property
    def norm_placement(self) -> str:
        """"pre", "post", "sandwich", "mixed" or "none", by the sublayers with a residual."""
        kept = self.residual()
        pre = [s.norm_before for s in kept]
        post = [s.norm_on_stream or s.norm_in_branch for s in kept[1:]]
        if kept and all(pre):
            return "sandwich" if all(s.norm_in_branch for s in kept) else "pre"
        if any(pre):
            return "mixed"
        return "post" if any(post) else "none"
