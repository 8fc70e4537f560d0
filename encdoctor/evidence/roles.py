"""Where queries, keys and values of each attention come from."""

from __future__ import annotations

from dataclasses import dataclass

from encdoctor.model import Place


@dataclass(frozen=True)
class Role:
    """One of q, k, v at a site.

    `maps` are the weights it comes through, `piece` tells its part of a fused map (equal maps and pieces: one tensor),
    `raw` that it is the stream itself, without a map of its own. `normed` tells that a norm stands between the stream
    and its map; `source` is the point of the stream that it reads. `spread` is how much the projection differs from
    token to token, relative to its size. `norm` is the place of that norm.
    """

    maps: tuple[str, ...]
    piece: tuple[int, ...]
    raw: bool
    normed: bool
    source: int
    spread: float
    place: Place
    norm: Place | None = None

    def same_as(self, other: Role) -> bool:
        """Whether both are one tensor."""
        return bool(self.maps) and self.maps == other.maps and self.piece == other.piece


@dataclass(frozen=True)
class SiteRoles:
    """q, k, v of one site.

    `place` is where scores are made, `mixed_at` where the weights are multiplied with the values. `spare` names a map
    of the attention's module, or part of one, that is not used ("" where there is none). `inert_heads` repeat another
    head or give zeros; `output_dead` tells that the map behind has weights of zero.
    """

    module: str
    layer: str
    place: Place
    mixed_at: Place
    foreign: bool
    query: Role
    key: Role
    value: Role
    spare: str
    inert_heads: tuple[int, ...] = ()
    heads: int = 1
    output_dead: bool = False

    @property
    def self_attention(self) -> bool:
        """All three read the same point of the stream."""
        return self.query.source == self.key.source == self.value.source

    @property
    def crossed(self) -> str:
        """Which two roles are one tensor though a map is left over, as "key and value"; "" where none are."""
        if not self.spare:
            return ""
        named = {"query": self.query, "key": self.key, "value": self.value}
        for one, other in (("key", "value"), ("query", "key"), ("query", "value")):
            if named[one].same_as(named[other]):
                return f"{one} and {other}"
        return ""


@dataclass(frozen=True)
class Roles:
    """All sites whose three roles could be followed back, in order."""

    sites: tuple[SiteRoles, ...]
