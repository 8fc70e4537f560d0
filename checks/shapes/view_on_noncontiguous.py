"""`view` on a tensor that is not contiguous.

What it looks at
    What ordinary calls raise: the usual batch, a batch without padding, and the same batch with input whose axes are
    swapped in memory, as a transpose leaves it.

Why it matters
    After `transpose` or `permute` the numbers lie in another order; `view` refuses to pretend otherwise.

What you see
    "view size is not compatible with input tensor's size and stride … Use .reshape(...) instead."

How to fix it
    Where heads are merged, move them back first, then reshape::

        out = (weights @ v).transpose(1, 2).reshape(B, S, H * head_dim)

    `reshape` silences every such error, also where the transpose is missing and heads of different tokens get mixed:
    look at the axes before you use it.

When it does not apply
    No such exception was met.

Where it points
    The line with the view.

References
    PyTorch, Tensor Views.
"""

from __future__ import annotations

from encdoctor.evidence.runs import ForwardRuns, Tried
from encdoctor.limits import EVERY_CALL_RUNS
from encdoctor.model import Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("SHP001", "view-on-noncontiguous", Severity.ERROR)


def check(runs: ForwardRuns) -> Verdict:
    refused = [t for t in runs.tried if t.raised is not None and t.raised.rule == RULE.slug]
    if not refused:
        return Passed()
    raised = refused[0].raised
    assert raised is not None
    only_strided = all(t.name == "strided" for t in refused)
    return Suspect(
        RULE,
        message="view is called on a tensor that is not contiguous" + _when(refused, only_strided),
        cause=f"{raised.text} ({raised.situation})",
        measured=float(len(refused)),
        limit=EVERY_CALL_RUNS,
        where=raised.places,
        fix="reshape instead of view, after making sure that the axes are in the right order",
        trials=(Trial("reshape_views"),),
        severity=Severity.WARNING if only_strided else None,
    )


def _when(refused: list[Tried], only_strided: bool) -> str:
    if only_strided:
        return " when the input is a slice or a transpose"
    return f" in {len(refused)} of the ordinary calls"
