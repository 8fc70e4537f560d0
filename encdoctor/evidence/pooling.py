"""Which position a pooled output is read from."""

from __future__ import annotations

from dataclasses import dataclass

from encdoctor.model import Place


@dataclass(frozen=True)
class Picked:
    """One operation that takes one position of each sample.

    `right` and `left` are the positions taken where padding stands on that side, one a sample; None where the run with
    padding on the left could not be made. `right_real` and `left_real` tell whether each of them is a real token;
    `counted` that the position depends on how many tokens are real.
    """

    key: str
    place: Place
    right: tuple[int, ...]
    right_real: bool
    left: tuple[int, ...] | None
    left_real: bool
    counted: bool


@dataclass(frozen=True)
class TokenPooling:
    """Every such operation on the way to an output; `why` tells why there could be none."""

    picks: tuple[Picked, ...] = ()
    why: str = ""
