"""Where the content of one position, or of one sample, reaches others without attention."""

from __future__ import annotations

from dataclasses import dataclass

from encdoctor.model import Place


@dataclass(frozen=True)
class Scramble:
    """A rearrangement of axes (view, reshape, …) after which one position's content stands at several.

    `before` and `after` are the shapes, `length` the number of positions among them. `merging` tells that it stands
    behind the product with the values, where heads are put together again. `reached` counts the positions, `change` is
    the largest difference at the wrong ones relative to the largest number. The same lines in other layers are in
    `keys` and `places` too.
    """

    keys: tuple[str, ...]
    places: tuple[Place, ...]
    merging: bool
    before: tuple[int, ...]
    after: tuple[int, ...]
    length: int
    reached: int
    change: float


@dataclass(frozen=True)
class Mixer:
    """The first operation, other than a rearrangement, that carries one position's content to others."""

    key: str
    operation: str
    place: Place
    reached: int
    change: float


@dataclass(frozen=True)
class TokenMixing:
    """What mixes positions when every attention weight is replaced by the identity.

    A sound encoder is then position-wise to the bit. `measured` is False, with `why`, where attention is not seen or
    is not square.
    """

    measured: bool
    why: str = ""
    scramble: Scramble | None = None
    mixer: Mixer | None = None


@dataclass(frozen=True)
class SampleCrossing:
    """Where the content of one sample first reaches another; looked for only where it does.

    `operation` takes samples together, `places` are its line and the first that shows it. `swapped` are torch's
    attention modules, or else the lines, whose softmax runs over the samples; `made` is where those modules are
    constructed, `all_swapped` tells that no other attention was seen. `declared` quotes what says that samples are
    meant to see each other.
    """

    operation: str = ""
    places: tuple[Place, ...] = ()
    swapped: tuple[str, ...] = ()
    swapped_at: tuple[Place, ...] = ()
    made: tuple[Place, ...] = ()
    all_swapped: bool = False
    declared: str = ""
