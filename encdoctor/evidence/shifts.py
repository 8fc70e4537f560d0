"""How results depend on where a sentence stands, and what a bias by distance prefers."""

from __future__ import annotations

from dataclasses import dataclass

from encdoctor.model import Place


@dataclass(frozen=True)
class LeftPadding:
    """How far real outputs differ between padding on the left and on the right, relative to the largest output."""

    measured: bool
    why: str = ""
    change: float = 0.0
    added: tuple[Place, ...] = ()


@dataclass(frozen=True)
class DistanceBias:
    """A fixed bias on the scores as a function of the distance: `before[d]` for keys d back, `after[d]` for keys
    ahead."""

    found: bool
    why: str = ""
    before: tuple[float, ...] = ()
    after: tuple[float, ...] = ()
    keys: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()
