"""Whether the same call gives the same result, what a call leaves behind, and how training differs from evaluation."""

from __future__ import annotations

from dataclasses import dataclass

from encdoctor.evidence.runs import Raised
from encdoctor.model import Place


@dataclass(frozen=True)
class Draw:
    """One operation that draws random numbers. `thins` tells that they decide what is kept (dropout, drop path).

    `registered` is False inside a module that is not in `named_modules()`, which `.eval()` does not reach. `rate` is
    the share that is dropped, None where it is not a dropout.
    """

    key: str
    operation: str
    module: str
    place: Place
    thins: bool
    registered: bool
    rate: float | None = None


@dataclass(frozen=True)
class Mutation:
    """One of the caller's tensors that differs after the call, and the line that wrote into it."""

    argument: str
    change: float
    place: Place


@dataclass(frozen=True)
class Kept:
    """An attribute that forward changed: where it is set, and whether it grows with each call."""

    owner: str
    attribute: str
    place: Place
    grows: bool


@dataclass(frozen=True)
class Repeats:
    """The same call again, in eval mode, in the model's own dtype; changes are relative to the largest output.

    `chance` compares two random seeds, `state` a call before and after a call of another shape (`after_other` is what
    the repeated call raised). `draws` is filled where chance matters. `switches` names global settings that differ
    after a forward, `reseeds` the generators that it sets, `sets` the line. `deliberate` quotes where chance or state
    is declared.
    """

    chance: float
    state: float
    after_other: Raised | None
    draws: tuple[Draw, ...]
    mutated: tuple[Mutation, ...]
    kept: tuple[Kept, ...]
    switches: tuple[str, ...]
    reseeds: tuple[str, ...]
    root: Place
    deliberate: str = ""
    sets: Place | None = None


@dataclass(frozen=True)
class DropoutModule:
    """A registered dropout with a rate above 0. `active` tells that it drew in train mode."""

    name: str
    rate: float
    active: bool
    place: Place


@dataclass(frozen=True)
class ThinnedScores:
    """A site whose scores are multiplied by a random mask before the softmax, in train mode.

    `key` is the operation that draws; `on_padding` is the largest weight that a padded key gets there.
    """

    key: str
    place: Place
    softmax: Place
    on_padding: float


@dataclass(frozen=True)
class TrainMode:
    """Train mode against eval mode.

    `draws` are those of train mode. `difference` is between the outputs of the two modes once every dropout is replaced
    by its mean, None where something else is drawn (`why`). `declared` lists dropout rates above 0 that constructor
    arguments or settings name. `reads_mode` are the lines that read `self.training`.
    """

    draws: tuple[Draw, ...]
    dropouts: tuple[DropoutModule, ...]
    declared: tuple[tuple[str, float], ...]
    difference: float | None
    why: str
    root: Place
    reads_mode: tuple[Place, ...] = ()
    thinned_scores: tuple[ThinnedScores, ...] = ()
