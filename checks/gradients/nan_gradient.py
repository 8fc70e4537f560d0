"""Forward is finite, backward is not.

What it looks at
    One backward with zeros at padding, as most data has them, and the calls on the way back: the one whose own
    gradient is finite and that hands back NaN or infinity.

Why it matters
    One such batch turns every weight before that call into NaN, though the loss looked fine.

What you see
    "Forward is fine, gradients are NaN"; NaN after the first step; NaN only with padding, or with empty sequences.

How to fix it
    The derivative of √x is infinite at 0, of x/‖x‖ undefined, and 0 · ∞ is NaN. Keep eps inside::

        x.var(-1).add(eps).sqrt()            # not x.var(-1).sqrt() + eps
        torch.where(ok, f(torch.where(ok, x, 1.0)), 0.0)   # both branches of where get gradients

When it does not apply
    Forward is not finite either, or backward is finite.

Where it points
    The call that hands back the first gradient that is not finite.

References
    PyTorch, Autograd mechanics: gradients for non-differentiable functions.
"""

from __future__ import annotations

from encdoctor.evidence.gradients import Backwards
from encdoctor.model import Limit, Passed, Rule, Severity, Suspect, Undecided, Verdict

RULE = Rule("GRD003", "nan-gradient", Severity.ERROR)
NONE = Limit(0, "gradients that are not finite", "what is learned from finite outputs has finite derivatives")


def check(backwards: Backwards) -> Verdict:
    if not backwards.bad:
        return Passed()
    if not backwards.bad_call:
        return Undecided(
            f"{len(backwards.bad)} gradients are not finite, and the call that makes them so was not seen",
            "torch.autograd.set_detect_anomaly(True)",
        )
    return Suspect(
        RULE,
        message=f"{backwards.bad_call} hands back a gradient that is not finite: {_names(backwards.bad)}",
        cause="with zeros at padding its derivative is infinite or undefined",
        measured=float(len(backwards.bad)),
        limit=NONE,
        where=(backwards.bad_place,),
        fix="keep eps inside the root or norm, or take the zeros out before it",
    )


def _names(bad: tuple[str, ...]) -> str:
    return ", ".join(bad[:3]) + (f" and {len(bad) - 3} more" if len(bad) > 3 else "")
