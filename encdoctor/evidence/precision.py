"""How far half precision and torch's fused paths lead away from float32 and plain attention."""

from __future__ import annotations

from dataclasses import dataclass

from encdoctor.model import Place


@dataclass(frozen=True)
class Divergence:
    """The half-precision run that lies farthest from float32, relative to the largest output.

    `module` is the first whose output is far off while its input is not, looked for only where the error is large;
    `before` and `after` are the errors of its input and its output. `jumps` names an operation inside that jumps where
    a number moves a little (a sign, a rounding, a choice), "" where there is none.
    """

    how: str
    error: float
    module: str = ""
    place: Place = Place()
    before: float = 0.0
    after: float = 0.0
    jumps: str = ""


@dataclass(frozen=True)
class Backends:
    """Eval mode without gradients, with torch's fused attention and fast path on and off; None where not comparable."""

    difference: float | None
    why: str
    place: Place
