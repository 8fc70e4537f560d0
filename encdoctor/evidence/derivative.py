"""The gradient against a finite difference."""

from __future__ import annotations

from dataclasses import dataclass

from encdoctor.model import Place


@dataclass(frozen=True)
class Derivative:
    """The derivative of a random projection of the output along one random direction of all trained parameters.

    `analytic` is what backward gives, `numeric` the central difference in float64. After a mismatch, `culprit` names an
    autograd function without whose backward the two agree, or a write into a tensor that autograd does not see.
    `deliberate` tells of what replaces a gradient on purpose, `smooth` that two step sizes agree.
    """

    measured: bool
    why: str = ""
    analytic: float = 0.0
    numeric: float = 0.0
    smooth: bool = True
    culprit: str = ""
    confirmed: bool = False
    places: tuple[Place, ...] = ()
    deliberate: str = ""

    @property
    def error(self) -> float:
        """The difference relative to the larger of the two."""
        size = max(abs(self.analytic), abs(self.numeric))
        return abs(self.analytic - self.numeric) / size if size else 0.0
