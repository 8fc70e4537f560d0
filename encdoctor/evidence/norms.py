"""How norms behave on constant rows, and how large their eps is against what they normalise."""

from __future__ import annotations

from dataclasses import dataclass

from encdoctor.model import Place


@dataclass(frozen=True)
class HandNorm:
    """A norm that is written out, run by itself on rows of one value and on rows of zeros.

    `bad` names the dtypes in which either gives NaN or infinity, "float32" (or the model's own) first. `modules` counts
    those of the same class.
    """

    module: str
    class_name: str
    place: Place
    bad: tuple[str, ...]
    row: str
    modules: int


@dataclass(frozen=True)
class NormEps:
    """A torch norm's eps over the median variance of its rows."""

    module: str
    place: Place
    foreign: bool
    eps: float
    variance: float

    @property
    def ratio(self) -> float:
        """eps over variance: at 1 the output is half as large as it should be, in squares."""
        return self.eps / self.variance if self.variance > 0 else float("inf")


@dataclass(frozen=True)
class Norms:
    """Norms that are written out, and torch's own."""

    written: tuple[HandNorm, ...]
    eps: tuple[NormEps, ...]
