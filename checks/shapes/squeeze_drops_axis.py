"""A batch of one, or a sequence of one, loses an axis of the output.

What it looks at
    A small grid of batch sizes and lengths around the smallest; the output must keep its number of axes.

Why it matters
    Code behind the encoder takes the first axis for the batch. With one sample it is another axis, and what follows is
    silently wrong.

What you see
    Results for a single sample in another shape; losses that broadcast.

How to fix it
    Say which axis to drop::

        return pooled.squeeze()      # before: (1, 1, D) becomes (D,)
        return pooled.squeeze(1)     # after

When it does not apply
    The output's shape does not depend on the batch; a call that raises is another rule's.

Where it points
    The squeeze.

References
    PyTorch, `torch.squeeze`.
"""

from __future__ import annotations

from encdoctor.evidence.edges import EdgeShapes
from encdoctor.intent import Intent
from encdoctor.limits import SMALL_CALLS_RUN
from encdoctor.model import NotApplicable, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("SHP008", "squeeze-drops-axis", Severity.WARNING)


def check(edges: EdgeShapes, intent: Intent) -> Verdict:
    if edges.why:
        return NotApplicable(edges.why)
    raising = {key for edge in edges.failing if edge.raised is not None for key in edge.squeezes}
    changed = [e for e in edges.failing if e.raised is None and len(e.shape) != len(e.expected)]
    changed = [e for e in changed if not set(e.squeezes) or not set(e.squeezes) <= raising]
    if not changed:
        return Passed()
    worst = changed[0]
    return Suspect(
        RULE,
        message=f"{worst.named} gives an output of shape {worst.shape}",
        cause=f"where {len(worst.expected)} axes are expected, {len(worst.shape)} come out"
        + (": a squeeze without an axis drops every axis of size 1" if worst.squeezes else ""),
        measured=float(len(changed)),
        limit=SMALL_CALLS_RUN,
        where=worst.squeezed_at,
        fix="give squeeze its axis",
        trials=(Trial("keep_axes", worst.squeezes),) if worst.squeezes else (),
        severity=Severity.NOTE if intent.installed else None,
    )
