"""Which registered modules take part, and which are the same or alike."""

from __future__ import annotations

from dataclasses import dataclass

from encdoctor.model import Place


@dataclass(frozen=True)
class Unused:
    """A module with parameters of which none reaches any output; submodules are not listed again.

    `ran` tells that it was run all the same and its result is lost, `siblings` that others in the same list do take
    part, `composite` that it is no single map; `lines` are those of methods where its attribute is read.
    """

    module: str
    class_name: str
    parameters: int
    ran: bool
    siblings: bool
    composite: bool
    place: Place
    lines: tuple[Place, ...] = ()


@dataclass(frozen=True)
class Alike:
    """A list whose entries are one object (`same`), or start with equal random weights."""

    module: str
    class_name: str
    count: int
    same: bool
    place: Place


@dataclass(frozen=True)
class Layers:
    """`repeated` has (layer, times, place) of a layer whose attention stands on the stream several times."""

    unused: tuple[Unused, ...] = ()
    alike: tuple[Alike, ...] = ()
    repeated: tuple[tuple[str, int, Place], ...] = ()
