"""What one backward shows."""

from __future__ import annotations

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
        """How much larger gradient × activation is anywhere on the trunk than at the output, 1 where it is nowhere."""
        sizes = [point.elasticity for point in self.trunk if point.elasticity > 0]
        return max(sizes) / sizes[-1] if sizes else 1.0

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
