"""Whether a handful of samples can be learned by heart."""

from __future__ import annotations

from dataclasses import dataclass

from encdoctor.model import Place


@dataclass(frozen=True)
class Broke:
    """The step at which training stopped being finite, forward or on the way back, and the call there."""

    step: int
    call: str
    backward: bool
    place: Place


@dataclass(frozen=True)
class TinyFit:
    """The loss over the steps of the best learning rate tried.

    `goal` is the loss to get below, `chance` that of guessing, both in nats. `reached` tells that it got there,
    `falling` that it was still on its way when the budget ended. `steps` counts forward+backward passes over all
    rates. `broke` is set where the loss or a gradient stopped being finite at the usual rate.
    """

    measured: bool
    why: str = ""
    losses: tuple[float, ...] = ()
    rate: float = 0.0
    chance: float = 0.0
    goal: float = 0.0
    reached: bool = False
    falling: bool = False
    finite: bool = True
    steps: int = 0
    broke: Broke | None = None
