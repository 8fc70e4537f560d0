"""The gradient fades on its way to the first layers.

What it looks at
    The gradient at every point that all paths from input to output go through (the residual stream between layers),
    relative to the gradient at the output. A fall counts where signal is lost: either the gradient falls while the
    activations do not grow to match, or the output itself is tiny, so that any loss of ordinary size hardly moves it.

Why it matters
    Layers near the input get updates thousands of times smaller than those near the output, and hardly train.

What you see
    Deep models that do not train, or train only in their last layers; a loss that hardly moves from its start.

How to fix it
    Keep residuals and norms in place, initialise with a scale that keeps the variance, and give gains their neutral
    value 1; small gains (LayerScale, ReZero) belong on branches, where the residual passes the gradient by::

        x = x + self.gain * branch(x)      # a small gain is fine here
        return x * self.gain               # not here

When it does not apply
    A rescaling that a later norm undoes; gates that are exactly 0 at the start; small scales on residual branches.

Where it points
    The step where most of the gradient is lost.

References
    Xiong et al. 2020, On Layer Normalization in the Transformer Architecture.
"""

from __future__ import annotations

import itertools

from encdoctor.evidence.gradients import Gradients, TrunkPoint
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Undecided, Verdict

RULE = Rule("GRD001", "gradient-vanishing", Severity.WARNING)
FALL = Limit(
    1e-3,
    "gradient before the step relative to the gradient at the output",
    "healthy encoders stay within 1e-2 along the residual stream; Adam's eps and half precision take the rest at 1e-3",
)


def check(gradients: Gradients) -> Verdict:
    points = _positive(gradients.trunk)
    if len(points) < 2:
        return NotApplicable("no point was found that every path goes through")
    if _share(points) >= FALL.value:
        return Passed(_share(points))
    if not gradients.train:
        return Undecided("the gradient falls in eval mode, and train mode was not measured", "a forward in train mode")
    train, opened = _positive(gradients.train), _positive(gradients.opened)
    if _shrunk(train):
        return _suspect(train)
    if _faded(opened):
        return _suspect(opened)
    return Passed(_share(train), "small gains on residual branches, or norms, explain it")


def _suspect(points: list[TrunkPoint]) -> Suspect:
    low = min(points, key=lambda p: p.gradient)
    behind = points[points.index(low) :]
    before, after = min(itertools.pairwise(behind), key=lambda pair: pair[0].gradient / pair[1].gradient)
    return Suspect(
        RULE,
        message=f"the gradient falls to {_share(points):.2g} of what it is at the output",
        cause=f"{after.name} lets {before.gradient / after.gradient:.2g} of the gradient through",
        measured=_share(points),
        limit=FALL,
        where=(after.place, before.place),
        fix="keep gains at 1 outside residual branches, and residuals around every sublayer",
    )


def _positive(points: tuple[TrunkPoint, ...]) -> list[TrunkPoint]:
    """Without what is exactly zero: a gate that is closed at the start opens with the first step."""
    return [p for p in points if p.gradient > 0]


def _share(points: list[TrunkPoint]) -> float:
    return min(p.gradient for p in points) / points[-1].gradient if points else 1.0


def _shrunk(points: list[TrunkPoint]) -> bool:
    """The output itself is tiny: a loss of ordinary size hardly moves anything before it."""
    return len(points) > 1 and _share(points) < FALL.value and points[-1].activation < FALL.value


def _faded(points: list[TrunkPoint]) -> bool:
    """The gradient falls, and activations do not grow to match."""
    if len(points) < 2 or _share(points) >= FALL.value:
        return False
    return min(p.elasticity for p in points) < FALL.value * points[-1].elasticity
