"""Backward does not compute the derivative of forward.

What it looks at
    The derivative of a random projection of the output along a random direction of all parameters: what backward gives
    against a central difference in float64. After a mismatch each custom autograd function is differentiated by
    autograd instead, to see whether the two agree then.

Why it matters
    Training follows another function than the one that is evaluated.

What you see
    It learns, but badly; a small change of a formula in `backward` changes nothing for the worse.

How to fix it
    Leave the derivative to autograd, or test what is written by hand::

        torch.autograd.gradcheck(MyFunction.apply, (x.double().requires_grad_(),))

    Write `x = x * mask`, not `x.data.mul_(mask)`: autograd does not see the latter.

When it does not apply
    The model does not run in float64, or is not smooth there. What replaces a gradient on purpose is left alone:
    straight- through estimators, gradient reversal and scaling, `detach`.

Where it points
    The `backward` of the function, or the write that autograd does not see.

References
    PyTorch, `torch.autograd.gradcheck`; CS231n, Gradient checks.
"""

from __future__ import annotations

from encdoctor.evidence.derivative import Derivative
from encdoctor.evidence.gradients import Gradients
from encdoctor.model import Confidence, Limit, NotApplicable, Passed, Rule, Severity, Suspect, Undecided, Verdict

RULE = Rule("GRD005", "gradient-wrong", Severity.ERROR)
AGREES = Limit(
    1e-2,
    "relative difference between backward and a central difference",
    "in float64 sound gradients agree to 1e-7; more than 1e-2 is wrong (CS231n, gradient checks)",
)


def check(derivative: Derivative, gradients: Gradients | None) -> Verdict:
    if not derivative.measured:
        return NotApplicable(derivative.why)
    if derivative.error <= AGREES.value:
        return Passed(derivative.error)
    if not derivative.smooth:
        return NotApplicable("the output is not smooth in the weights: something is chosen or rounded")
    if derivative.deliberate:
        return NotApplicable(derivative.deliberate)
    if not derivative.culprit:
        if gradients is not None and gradients.cuts:
            return NotApplicable("part of the gradient is detached")
        return Undecided(
            f"backward and a finite difference differ by {derivative.error:.2g}, and who is to blame was not seen",
            "torch.autograd.gradcheck on the parts",
        )
    return Suspect(
        RULE,
        message=f"the gradient is wrong: it differs from a central difference by {derivative.error:.2g}",
        cause=f"{derivative.culprit}" + (": with autograd in its place the two agree" if derivative.confirmed else ""),
        measured=derivative.error,
        limit=AGREES,
        where=derivative.places,
        fix="leave the derivative to autograd, or mend it until torch.autograd.gradcheck passes",
        confidence=Confidence.LIKELY,
    )
