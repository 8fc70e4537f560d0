"""Eight samples cannot be learned by heart.

What it looks at
    Eight random samples in four classes, the encoder with a linear head, AdamW without dropout or decay, a few learning
    rates, at most 60 passes. Healthy encoders need 4 to 61 steps to bring the loss below a tenth of chance.

Why it matters
    What cannot learn eight samples cannot learn eight million. If it fails, look for a fault before touching the
    learning rate; if it passes, look at data and schedule.

What you see
    A loss that stays at ln C from the first epoch, or that is NaN.

How to fix it
    See the other findings first: constant outputs, cut gradients, dead or frozen parts. The learning curve is in the
    report.

When it does not apply
    It is skipped by `--fast`. A loss that has left chance when the budget ends is undecided. Where the output is
    constant or the gradient vanishes, those findings say more.

Where it points
    The model as a whole: this is a symptom, and other findings name its cause.

References
    Karpathy 2019, A Recipe for Training Neural Networks: "overfit one batch".
"""

from __future__ import annotations

from encdoctor.evidence.gradients import Gradients
from encdoctor.evidence.learning import TinyFit
from encdoctor.evidence.modules import ModuleTree
from encdoctor.evidence.outputs import OutputFacts
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Undecided, Verdict

RULE = Rule("FIT001", "cannot-overfit-tiny-set", Severity.ERROR)
# Below this share of chance something was learned, and more passes might do: a fault stays within 10 % of chance.
AT_CHANCE = 0.9
# The gradient's fall beyond which gradient-vanishing has the word.
FALL = 1e-4


def check(fit: TinyFit, modules: ModuleTree, outputs: OutputFacts | None, gradients: Gradients | None) -> Verdict:
    if not fit.measured:
        return NotApplicable(fit.why)
    if outputs is not None and outputs.depends == 0:
        return NotApplicable("the output does not depend on the input: constant-output says where")
    because = f"a tenth of chance, ln 4 = {fit.chance:.3g}; healthy encoders need 4 to 61 steps"
    goal = Limit(fit.goal, "nats of loss", because)
    if fit.reached:
        return Passed(fit.losses[-1])
    if fit.broke is not None:
        return NotApplicable("training stops being finite: loss-nan says where")
    if gradients is not None and _falls(gradients):
        return NotApplicable("the gradient hardly comes back: gradient-vanishing says where")
    best = min(fit.losses)
    if fit.finite and (fit.falling or best < AT_CHANCE * fit.chance):
        return Undecided(
            f"the loss fell from {fit.losses[0]:.3g} to {best:.3g} in {fit.steps} passes and was not done",
            "--full, or a longer run of your own",
        )
    return Suspect(
        RULE,
        message=f"eight samples were not learned in {fit.steps} steps: the loss stays at {best:.3g}"
        if fit.finite
        else f"the loss is not finite after {len(fit.losses)} steps",
        cause="outputs do not tell the samples apart, or the gradient does not reach what could",
        measured=best if fit.finite else fit.losses[-1],
        limit=goal,
        where=(modules.root,),
        fix="mend the other findings first; look at whether outputs differ between inputs",
    )


def _falls(gradients: Gradients) -> bool:
    sizes = [p.gradient for p in gradients.train if p.gradient > 0]
    return bool(sizes) and min(sizes) < FALL * sizes[-1]
