"""The output does not depend on the input.

What it looks at
    All content of one sample is replaced: its output has to move.

Why it matters
    Nothing can be learned but the average of the targets.

What you see
    The same prediction for every input; a loss that is constant from the first epoch, or stops at ln C.

How to fix it
    Read the result of the last layer, not a tensor from before the stack::

        out = self.norm(x[:, 0])      # not self.norm(cls[:, 0]), the [CLS] token as it went in

When it does not apply
    The output moves.

Where it points
    The first line on the way to the output that reads nothing of the input.

References
    Karpathy 2019, A Recipe for Training Neural Networks: "verify that the net can use its input".
"""

from __future__ import annotations

from encdoctor.evidence.outputs import OutputFacts
from encdoctor.model import Limit, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("FIT003", "constant-output", Severity.ERROR)
SOME = Limit(0.0, "change of the output when all content is replaced", "exactly 0 means that nothing of it is read")


def check(outputs: OutputFacts) -> Verdict:
    if outputs.depends > 0:
        return Passed(outputs.depends)
    return Suspect(
        RULE,
        message="the output is the same for every input",
        cause="on the way to the output nothing of the input is read",
        measured=outputs.depends,
        limit=SOME,
        where=outputs.lost_at,
        fix="make the output from the last layer's result",
    )
