"""What the model is made of: parameters that are read, trained, tied, and drawn at random."""

from __future__ import annotations

from dataclasses import dataclass

from encdoctor.model import Place


@dataclass(frozen=True)
class FrozenPart:
    """Parameters that want no gradient, grouped by the module they belong to.

    `moves` tells how far outputs move when the part is changed; `random` that another seed builds other values, None
    where the model could not be built twice.
    """

    name: str
    parameters: int
    moves: float
    random: bool | None
    place: Place


@dataclass(frozen=True)
class UnusedPart:
    """The topmost module or parameter of which nothing is read in any run.

    `mentioned` tells that a method other than `__init__` names the attribute: it may be used on another branch. `layer`
    tells that it is one of several in a container whose others run.
    """

    name: str
    parameters: int
    mentioned: bool
    layer: bool
    place: Place


@dataclass(frozen=True)
class BrokenTie:
    """An assignment in the source that ties two parameters, which are two when the model is built.

    `places` lists assignments that replace one of them, then the tie itself.
    """

    left: str
    right: str
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Parts:
    """Frozen and unused parts, and ties that did not hold."""

    frozen: tuple[FrozenPart, ...]
    unused: tuple[UnusedPart, ...]
    broken_ties: tuple[BrokenTie, ...]
