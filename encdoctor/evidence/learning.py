"""Whether a handful of samples can be learned by heart."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TinyFit:
    """The loss over the steps of the best learning rate tried.

    `goal` is the loss to get below, `chance` that of guessing, both in nats. `reached` tells that it got there, `falling`
    that it was still on its way when the budget ended. `steps` counts forward+backward passes over all rates.
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
