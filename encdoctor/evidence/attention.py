"""What the trace shows of every attention site: what is masked there, how, and what the weights do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from encdoctor.model import Place


class Covers(StrEnum):
    """What a mask at a site hides, compared with the padding that the batch really has."""

    NOTHING = "nothing"
    PADDED_KEYS = "padded keys"
    REAL_KEYS = "real keys"
    PADDED_ROWS = "padded query rows"
    OTHER_SAMPLE = "another sample's padding"
    SHIFTED = "the padding, shifted"
    FUTURE = "future keys"
    PAST = "past keys"
    BAND = "keys outside a band"
    DIAGONAL = "the own position"
    ALL = "everything"
    OTHER = "something else"


@dataclass(frozen=True)
class MaskAt:
    """One operation that masks scores.

    `covers` is what it hides; `offset` the diagonal of a causal mask (1: strictly later keys are hidden), the width of
    a band, or by how many keys a padding mask has slipped. `fill` is the value that hidden scores get (`how` "fill") or
    that is added to them ("add"). `rank` is the mask's number of axes before broadcasting, `score_rank` the scores'.
    `grows` tells that masking added axes to the scores. `history` lists the lines on which the mask was made, the
    latest first, and `shaped` the latest on which its axes were laid out. `hides_self` tells that it hides every
    real query's own position, and not everything.
    """

    key: str
    place: Place
    how: str
    covers: Covers
    fill: float
    from_mask: bool
    rank: int
    score_rank: int
    offset: int = 0
    grows: bool = False
    history: tuple[Place, ...] = ()
    shaped: Place | None = None
    hides_self: bool = False


@dataclass(frozen=True)
class Site:
    """One softmax over scores q·kᵀ.

    `on_padding` is the largest weight that a real query gives to a padded key, `on_future` the largest that any
    query gives to a later key, `on_self` to its own position (None where queries and keys are not the same positions).
    `blind_samples` counts samples with a head whose real queries see no key at all. `aligned` tells that it is known
    which keys are real, `own_positions` that the keys are the input's positions, no more and no fewer. `scale` is the
    product of the scalars on the way from q·kᵀ to the softmax, None where it could not be read. `foreign` sites lie
    inside a torch module. `mask_lost_at` lists the calls, the outermost first, that hand the mask no further although
    their caller has it.
    """

    key: str
    module: str
    place: Place
    scores_place: Place
    foreign: bool
    heads: int
    queries: int
    keys: int
    head_dim: int
    scale: float | None
    masks: tuple[MaskAt, ...]
    on_padding: float
    on_future: float
    after_softmax: tuple[MaskAt, ...] = ()
    over_batch: bool = False
    on_self: float | None = None
    blind_samples: int = 0
    mask_lost_at: tuple[Place, ...] = ()
    aligned: bool = True
    own_positions: bool = True

    def hides_padding(self) -> bool:
        """Whether some mask here covers the padded keys."""
        return any(mask.covers is Covers.PADDED_KEYS for mask in self.masks)

    def reads_mask(self) -> bool:
        """Whether any mask that is made from the caller's hides something, before or after the softmax."""
        masks = (*self.masks, *self.after_softmax)
        return any(m.covers is not Covers.NOTHING and (m.from_mask or m.covers is Covers.PADDED_KEYS) for m in masks)

    def applied(self, mask: MaskAt) -> Place:
        """The line that applies a mask here: the call into attention where that lies inside a torch module."""
        return self.place if self.foreign else mask.place

    def made(self, mask: MaskAt) -> tuple[Place, ...]:
        """The lines that made a mask, the latest first, then the one that applies it."""
        applied = self.applied(mask)
        return (*(p for p in mask.history if (p.file, p.line) != (applied.file, applied.line)), applied)


@dataclass(frozen=True)
class AttentionSites:
    """All sites in the order they run. `understood` is False where the trace cannot see attention; `why` says so."""

    sites: tuple[Site, ...]
    understood: bool
    why: str = ""


@dataclass(frozen=True)
class UnmaskedSites:
    """The same without padding and without a mask; gathered only where no output there sees a later position."""

    sites: tuple[Site, ...]
