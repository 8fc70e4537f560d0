"""A write in place destroys what backward needs.

What it looks at
    Whether backward raises over a tensor that was "modified by an inplace operation", and which operations wrote into a
    tensor that an earlier one had read.

Why it matters
    The model runs, and cannot be trained.

What you see
    "one of the variables needed for gradient computation has been modified by an inplace operation".

How to fix it
    Make a new tensor::

        x = x + self.attention(self.norm(x))     # not x += …

When it does not apply
    Backward goes through.

Where it points
    The write, the latest first.

References
    PyTorch, Autograd mechanics: in-place operations with autograd.
"""

from __future__ import annotations

from encdoctor.evidence.gradients import Backwards
from encdoctor.limits import BACKWARD_RUNS
from encdoctor.model import Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("GRD009", "inplace-breaks-backward", Severity.ERROR)
TEXT = "modified by an inplace operation"


def check(backwards: Backwards) -> Verdict:
    if TEXT not in backwards.raised:
        return Passed()
    return Suspect(
        RULE,
        message="backward raises: a tensor that it needs was overwritten",
        cause=backwards.raised,
        measured=1.0,
        limit=BACKWARD_RUNS,
        where=backwards.written_at,
        fix="write x = x + y instead of x += y",
        trials=(Trial("out_of_place"),),
    )
