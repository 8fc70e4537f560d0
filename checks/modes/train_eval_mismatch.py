"""Train mode computes something else than eval mode, dropout apart.

What it looks at
    Train mode with every dropout replaced by its mean, against eval mode, in float64 and with plain attention.

Why it matters
    What is evaluated is not what was trained: the weights fit the one function and are used in the other.

What you see
    A training loss that falls while validation stays bad, even on the training data itself.

How to fix it
    Let the two modes differ in dropout alone, and let dropout keep the mean::

        x = x * (torch.rand_like(x) > p)                     # before: smaller by 1 − p in training
        x = x * (torch.rand_like(x) > p) / (1 - p)           # after

When it does not apply
    Batch norm (batchnorm-in-encoder says so); training that draws something else than dropout (masked spans, noise,
    skipped layers).

Where it points
    The lines that read `self.training`, or the class.

References
    Srivastava et al. 2014, section 10 (inverted dropout).
"""

from __future__ import annotations

from encdoctor.evidence.modes import TrainMode
from encdoctor.intent import Intent
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("MOD003", "train-eval-mismatch", Severity.WARNING)
ALIKE = Limit(
    1e-4,
    "relative difference of the two modes, dropout replaced by its mean",
    "float64 keeps 1e-12 through the same operations, and 1e-7 where softmax or rotary tables run in float32",
)


def check(intent: Intent, train: TrainMode) -> Verdict:
    if train.difference is None:
        return NotApplicable(train.why)
    if train.difference <= ALIKE.value:
        return Passed(train.difference)
    return Suspect(
        RULE,
        message=f"train and eval mode differ by {train.difference:.2g} beyond dropout",
        cause="the two modes take different ways, or a dropout does not keep the mean",
        measured=train.difference,
        limit=ALIKE,
        where=(*train.reads_mode, train.root),
        fix="let self.training decide about dropout only, and divide what is kept by 1 − p",
        severity=Severity.NOTE if intent.installed else None,
    )
