"""What the model is made of: parameters that are read, trained, tied, and drawn at random."""

from __future__ import annotations

from dataclasses import dataclass

from encdoctor.model import Place


@dataclass(frozen=True)
class FrozenPart:
    """Parameters that want no gradient, grouped by the module they belong to; equal layers are one part.

    `moves` tells how far outputs move when the part is changed; `random` that another seed builds other values, None
    where the model could not be built twice.
    """

    name: str
    parameters: int
    moves: float
    random: bool | None
    places: tuple[Place, ...]


@dataclass(frozen=True)
class UnusedPart:
    """The topmost module or parameter of which nothing reaches the output in any run; equal layers are one part.

    `ran` tells that it is run all the same and its result is lost, `mentioned` that a method that runs after building
    names the attribute: it may be used on another branch.
    """

    name: str
    parameters: int
    ran: bool
    mentioned: bool
    places: tuple[Place, ...]


@dataclass(frozen=True)
class BrokenTie:
    """An assignment in the source that ties two parameters, which are two when the model is built.

    `in_memory` tells that they still lie in the same memory. `places` lists assignments that replace one of them, then
    the tie itself.
    """

    left: str
    right: str
    in_memory: bool
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Parts:
    """Frozen and unused parts, and ties that did not hold."""

    frozen: tuple[FrozenPart, ...]
    unused: tuple[UnusedPart, ...]
    broken_ties: tuple[BrokenTie, ...]
