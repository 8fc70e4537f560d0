"""What one backward shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from encdoctor.model import Place


@dataclass(frozen=True)
class TrunkPoint:
    """A tensor that every path from input to output goes through.

    `gradient` and `activation` are root mean squares of a typical row (the median); the loss is a random projection of
    the output, so that the gradient at the output has root mean square 1.
    """

    name: str
    place: Place
    gradient: float
    activation: float

    @property
    def elasticity(self) -> float:
        """Gradient times activation: unchanged by rescaling, so that a fall of it is lost signal."""
        return self.gradient * self.activation


def growth_along(points: Sequence[TrunkPoint]) -> float:
    """How much larger the gradient is anywhere on the trunk than at the output, at least 1.

    The smaller of two figures: the gradient's own growth, which a rescaling causes as well, and that of gradient ×
    activation, which a large constant that is added and taken away causes as well. What amplifies shows in both.
    """
    alive = [p for p in points if p.elasticity > 0]
    if not alive:
        return 1.0
    end = alive[-1]
    gradient = max(p.gradient for p in alive) / end.gradient
    return min(gradient, max(p.elasticity for p in alive) / end.elasticity)


@dataclass(frozen=True)
class ParameterGradient:
    """One parameter that wants a gradient. `gradient` is its root mean square, None where there is none.

    `moves_output` tells, for those without gradient, how far the output moves when the parameter is changed.
    """

    name: str
    gradient: float | None
    weight: float
    moves_output: float | None = None


@dataclass(frozen=True)
class Cut:
    """A line behind which no gradient flows, though one came in. `kind` is detach, data, no_grad, … or an op."""

    kind: str
    place: Place
    key: str


@dataclass(frozen=True)
class Gradients:
    """The gradient's way back from the output, in float64 where the model runs in it, dropout off.

    `trunk` runs from input to output. `train` is the same in train mode, `opened` in train mode with small constant
    gains (LayerScale, ReZero) set to 1 on the copy; both are gathered only where the first falls or grows suspiciously.
    """

    trunk: tuple[TrunkPoint, ...]
    train: tuple[TrunkPoint, ...]
    opened: tuple[TrunkPoint, ...]
    parameters: tuple[ParameterGradient, ...]
    cuts: tuple[Cut, ...]
    finite: bool
    output_activation: float

    def growth(self) -> float:
        """`growth_along` the trunk in eval mode."""
        return growth_along(self.trunk)

    def blocked(self) -> tuple[ParameterGradient, ...]:
        """Parameters without gradient that nevertheless move the output."""
        return tuple(p for p in self.parameters if not p.gradient and (p.moves_output or 0.0) > MOVES)


@dataclass(frozen=True)
class Backwards:
    """Backward in situations where it goes wrong though forward does not.

    `bad` names parameters (and the input) whose gradient is not finite for zeros at padding, `bad_call` and `bad_place`
    the call that makes it so. `lost_in_train` names parameters that get a gradient in eval mode and none in train mode,
    `recomputed_at` the calls of checkpointing there. `raised` is what backward raised, `written_at` the in-place
    operations that may be why.
    """

    bad: tuple[str, ...] = ()
    bad_call: str = ""
    bad_place: Place = Place()
    lost_in_train: tuple[str, ...] = ()
    recomputed_at: tuple[Place, ...] = ()
    raised: str = ""
    written_at: tuple[Place, ...] = ()


# A change of a parameter by its own size that moves the output by less than this, relative, is round-off: float64
# keeps 2e-16 and a key bias, which softmax ignores by a theorem, moves outputs by up to 1e-12.
MOVES = 1e-9
