"""A batch of one, or a sequence of one, fails.

What it looks at
    A small grid of batch sizes and lengths around the smallest: one sample, one position, both, and a length of
    the other parity. The smallest failing call is shown. Squeezes without an axis that drop more than usual are named.

Why it matters
    The last batch of an epoch has one sample sooner or later, and so has every request in production.

What you see
    A shape error far from its cause, at the end of an epoch or on the first request.

How to fix it
    Say which axis to drop, and reshape by the sizes that you mean::

        weights = self.score(x).squeeze()       # before: (1, S, 1) becomes (S,)
        weights = self.score(x).squeeze(-1)     # after

When it does not apply
    The encoder refuses with a clear error of its own; a convolution needs more positions than there are (a note).

Where it points
    The squeeze, then the line that raised.

References
    PyTorch, `torch.squeeze`: "when dim is not given, all dimensions of size 1 are removed".
"""

from __future__ import annotations

from encdoctor.evidence.edges import Edge, EdgeShapes
from encdoctor.intent import Intent
from encdoctor.limits import SMALL_CALLS_RUN
from encdoctor.model import NotApplicable, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("SHP006", "edge-shape-failure", Severity.WARNING)


def check(edges: EdgeShapes, intent: Intent) -> Verdict:
    if edges.why:
        return NotApplicable(edges.why)
    failing = [edge for edge in edges.failing if edge.raised is not None and not edge.deliberate]
    if not failing:
        return Passed()
    loud = [edge for edge in failing if not edge.too_short]
    worst = (loud or failing)[0]
    assert worst.raised is not None
    return Suspect(
        RULE,
        message=f"{worst.named} fails: {worst.raised.text}",
        cause=_cause(worst, len(failing), edges.tried),
        measured=float(len(failing)),
        limit=SMALL_CALLS_RUN,
        where=(*worst.squeezed_at, *worst.raised.places),
        fix="give squeeze its axis" if worst.squeezes else "make the smallest sizes go through, or refuse them clearly",
        trials=(Trial("keep_axes", worst.squeezes),) if worst.squeezes else (),
        severity=Severity.NOTE if intent.installed or not loud else None,
    )


def _cause(edge: Edge, failing: int, tried: int) -> str:
    counted = f"{failing} of {tried} small calls fail"
    if edge.squeezes:
        return f"{counted}: a squeeze without an axis also drops the axis whose size happens to be 1"
    return f"{counted}: fewer positions than the kernel needs" if edge.too_short else counted
