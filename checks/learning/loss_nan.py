"""Training stops being finite after a few ordinary steps.

What it looks at
    Eight random samples and a linear head, AdamW with a learning rate of 1e-3: the first step whose loss or gradient
    is not finite, and the first call there that makes NaN or infinity out of finite numbers.

Why it matters
    One such step turns all weights into NaN.

What you see
    "Loss is NaN" after some steps, on clean data, with a small learning rate.

How to fix it
    Keep parameters where the function is defined. A step of AdamW moves each by about the learning rate, through zero
    too::

        scale = F.softplus(self.raw).sqrt()          # not self.variance.sqrt()
        log_t = self.log_temperature                 # learn the logarithm, not log(self.temperature)

When it does not apply
    It is skipped by `--fast`. Gradients that are not finite before any step are for nan-gradient.

Where it points
    The call that makes the first number that is not finite.

References
    PyTorch, `torch.autograd.set_detect_anomaly`.
"""

from __future__ import annotations

from encdoctor.evidence.gradients import Backwards
from encdoctor.evidence.learning import TinyFit
from encdoctor.evidence.modules import ModuleTree
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("FIT004", "loss-nan", Severity.ERROR)
FINITE = Limit(0, "steps that are not finite", "healthy encoders take 24 steps at 1e-3 without one")


def check(fit: TinyFit, modules: ModuleTree, backwards: Backwards | None) -> Verdict:
    if not fit.measured:
        return NotApplicable(fit.why)
    if fit.broke is None:
        return Passed()
    if backwards is not None and backwards.bad:
        return NotApplicable("the first gradient is not finite: nan-gradient says where")
    broke = fit.broke
    call = (broke.call or "an operation that was not seen") + (" in backward" if broke.backward else "")
    return Suspect(
        RULE,
        message=f"after {broke.step} steps of training {call} is not finite",
        cause="its input left the range in which it is defined, or has a derivative",
        measured=1.0,
        limit=FINITE,
        where=(broke.place if broke.place.line else modules.root,),
        fix="keep what is learned in range: learn the logarithm, or pass it through softplus and add eps",
    )
