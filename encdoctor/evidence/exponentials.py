"""What exponentials and logarithms do once their arguments have the size that training gives them."""

from __future__ import annotations

from dataclasses import dataclass

from encdoctor.model import Place


@dataclass(frozen=True)
class Exponential:
    """One softmax that is written out (`kind` "exp"), or a logarithm of a softmax (`kind` "log").

    `key` is the operation, `source` the one that makes its argument, `dim` the softmax's axis. `largest` is the largest
    argument now, `bad_share` the share of real outputs that stop being finite when it is enlarged to `enlarged_to`.
    """

    key: str
    source: str
    kind: str
    dim: int
    place: Place
    foreign: bool
    largest: float
    enlarged_to: float
    bad_share: float


@dataclass(frozen=True)
class Exponentials:
    """All of them; those whose argument is bounded (maximum subtracted, clamped, squashed) are not listed."""

    found: tuple[Exponential, ...]
