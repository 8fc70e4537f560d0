"""A dropout rate is given, and nothing is ever dropped.

What it looks at
    One recorded forward in train mode. Registered dropouts, constructor arguments and settings name rates above 0,
    and no operation draws a mask.

Why it matters
    The regularisation that the author believes in is off; results with different rates are one and the same.

What you see
    Changing the dropout rate changes nothing; overfitting that dropout does not mend.

How to fix it
    Apply it, or do not take the argument::

        self.dropout = nn.Dropout(dropout)                    # before: never called
        x = x + self.dropout(self.attention(x))               # after

When it does not apply
    Every rate is 0; some dropout does act in train mode.

Where it points
    The line where the dropout is made, or the class.

References
    Srivastava et al. 2014.
"""

from __future__ import annotations

from encdoctor.evidence.modes import TrainMode
from encdoctor.intent import Intent
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("MOD006", "dropout-never-active", Severity.WARNING)
SOME = Limit(1.0, "operations that drop something in train mode", "a rate above 0 has to act somewhere")


def check(intent: Intent, train: TrainMode) -> Verdict:
    given = [*((d.name, d.rate) for d in train.dropouts), *train.declared]
    if not given:
        return NotApplicable("no dropout rate above 0 is given")
    if train.draws:
        return Passed(float(len(train.draws)))
    name, rate = given[0]
    return Suspect(
        RULE,
        message=f"{name} = {rate:g} is given, and nothing is dropped in train mode",
        cause="the dropout is made, or its rate taken, but never applied",
        measured=0.0,
        limit=SOME,
        where=tuple(dict.fromkeys(d.place for d in train.dropouts)) or (train.root,),
        fix="apply the dropout in forward, or remove the argument",
        severity=Severity.NOTE if intent.installed else None,
    )
