"""Which outputs depend on which inputs, measured by changing contents."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from encdoctor.limits import PADDING_MOVES_NOTHING


@dataclass(frozen=True)
class PaddingInfluence:
    """What changing padding, and changing real content, does to outputs at real positions.

    Figures are the largest change relative to the largest output. `on_padding` is measured in float64 where the model
    runs in it, `on_padding_own` in the model's own dtype. `measured` is False, with `why`, where there is no
    padding to change: no mask, no lengths, no pad id.
    """

    measured: bool
    why: str = ""
    on_padding: float = 0.0
    on_padding_own: float = 0.0
    on_real: float = 0.0

    @property
    def leaks(self) -> bool:
        """Padding moves real outputs, in float64 and in the model's own dtype."""
        return self.on_padding > PADDING_MOVES_NOTHING.value and self.on_padding_own > 0


@dataclass(frozen=True)
class InfluenceMatrix:
    """`padded[i, j]`: how far output i moves when input j changes, in a sample with `real` real positions.

    `full` is the same without padding and without a mask. Relative to the largest output. None where it does not
    apply. Rows are output positions that correspond to inputs; a pooled output has one row.
    """

    padded: NDArray[np.float64] | None
    full: NDArray[np.float64] | None
    real: int
    length: int
    why: str = ""

    def future(self) -> tuple[float, float] | None:
        """(largest influence of a later on an earlier position, of an earlier on a later), without padding."""
        matrix = self.full
        if matrix is None or matrix.shape[0] != matrix.shape[1]:
            return None
        return float(np.triu(matrix, 1).max()), float(np.tril(matrix, -1).max())

    def future_padded(self) -> tuple[float, float] | None:
        """The same among the real positions of the padded sample."""
        if self.padded is None or self.padded.shape[0] != self.padded.shape[1] or self.real < 2:
            return None
        matrix = self.padded[: self.real, : self.real]
        return float(np.triu(matrix, 1).max()), float(np.tril(matrix, -1).max())


@dataclass(frozen=True)
class SampleMixing:
    """How far other samples move when one sample's content changes, in eval, relative to the largest output."""

    across: float
    within: float
