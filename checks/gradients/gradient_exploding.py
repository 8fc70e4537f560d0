"""The gradient grows on its way to the first layers.

What it looks at
    The gradient, and gradient times activation, at every point that all paths go through. The product does not change
    when something is only rescaled; where both grow a thousandfold from output to input, small changes of the input are
    amplified by as much.

Why it matters
    One step of the optimiser throws the lower layers far off; clipping then hides what the upper layers need.

What you see
    A loss that explodes at the first steps, worse the deeper the model; NaN after warm-up.

How to fix it
    Scale attention scores by 1/√head_dim, initialise projections with variance 1/fan_in, and put a norm before every
    sublayer (pre-norm) or after every sum (post-norm).

When it does not apply
    Small embeddings in front of a norm: the norm enlarges the gradient as it enlarges the activations.

Where it points
    The step where it grows most.

References
    Xiong et al. 2020; Pascanu et al. 2013, On the difficulty of training recurrent neural networks.
"""

from __future__ import annotations

import itertools

from encdoctor.evidence.gradients import Gradients, growth_along
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Undecided, Verdict

RULE = Rule("GRD002", "gradient-exploding", Severity.WARNING)
GROWTH = Limit(
    1e3,
    "gradient × activation relative to the output's",
    "healthy encoders stay below 30 on fresh weights; a thousandfold lifts float16's round-off to the signal's size",
)


def check(gradients: Gradients) -> Verdict:
    points = [p for p in gradients.trunk if p.elasticity > 0]
    if len(points) < 2:
        return NotApplicable("no point was found that every path goes through")
    growth = growth_along(points)
    if growth < GROWTH.value:
        return Passed(growth)
    if not gradients.train:
        return Undecided("the gradient grows in eval mode, and train mode was not measured", "a forward in train mode")
    points = [p for p in gradients.train if p.elasticity > 0]
    growth = growth_along(points)
    if growth < GROWTH.value:
        return Passed(growth, "only in eval mode, where norms have untrained statistics")
    before, after = max(itertools.pairwise(points), key=lambda pair: pair[0].elasticity / pair[1].elasticity)
    return Suspect(
        RULE,
        message=f"the gradient grows {growth:.2g}-fold from output to input",
        cause=f"at {after.name} it grows {before.elasticity / after.elasticity:.2g}-fold",
        measured=growth,
        limit=GROWTH,
        where=(after.place, before.place),
        fix="scale scores by 1/√head_dim, initialise with variance 1/fan_in, norm every sublayer",
    )
