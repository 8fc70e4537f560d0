"""How the weights of the maps and norms along the stream are drawn."""

from __future__ import annotations

from dataclasses import dataclass

from encdoctor.model import Place


@dataclass(frozen=True)
class MapWeight:
    """One learned linear map on the way to the output.

    `gain` is the standard deviation of its weights times the root of its fan-in: what it does to the size of inputs of
    unit size. `equal_units` is the share of output units whose weights equal another unit's, `in_body` tells that it
    belongs to a sublayer.
    """

    name: str
    gain: float
    fan_in: int
    units: int
    equal_units: int
    in_body: bool
    place: Place


@dataclass(frozen=True)
class NormGain:
    """The gain of one norm; `ends_branch` tells that what it gives is added to the stream (zero there is a choice)."""

    name: str
    largest: float
    ends_branch: bool
    place: Place


@dataclass(frozen=True)
class Initialisation:
    """All of them, and the lines of the user's source that draw weights."""

    maps: tuple[MapWeight, ...]
    gains: tuple[NormGain, ...]
    drawn_at: tuple[Place, ...]
