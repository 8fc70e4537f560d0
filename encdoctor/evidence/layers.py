"""Which registered modules take part, and which are the same or alike."""

from __future__ import annotations

from dataclasses import dataclass

from encdoctor.model import Place


@dataclass(frozen=True)
class Unused:
    """A module with parameters of which none reaches any output; submodules are not listed again.

    `ran` tells that it was run all the same and its result is lost. `read` tells that the source reads its attribute
    outside constructors, `lines` where; `siblings` that others in the same list do take part. `own` tells that the
    class that registers it is the user's to change.
    """

    module: str
    class_name: str
    parameters: int
    ran: bool
    read: bool
    siblings: bool
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
    """`attends` counts attention sites in the output's history; 0 where none was recognised."""

    unused: tuple[Unused, ...] = ()
    alike: tuple[Alike, ...] = ()
    repeated: tuple[tuple[str, int, Place], ...] = ()
