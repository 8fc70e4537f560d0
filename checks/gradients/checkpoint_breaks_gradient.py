"""Gradient checkpointing loses gradients.

What it looks at
    Which parameters get a gradient in eval mode and none in train mode, where parts of the forward are recomputed in
    backward. The input is data there, as in training, and wants no gradient.

Why it matters
    The re-entrant form of checkpointing gives no gradient at all where none of its inputs wants one: the first segment,
    and with it everything before, is never trained.

What you see
    "None of the inputs have requires_grad=True. Gradients will be None", once, as a warning; layers that never change.

How to fix it
    Use the other form::

        x = checkpoint(layer, x, mask, use_reentrant=False)

When it does not apply
    Nothing is recomputed in train mode, or every parameter keeps its gradient.

Where it points
    The call of checkpoint.

References
    PyTorch, torch.utils.checkpoint: differences of the two forms.
"""

from __future__ import annotations

from encdoctor.evidence.gradients import Backwards
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("GRD006", "checkpoint-breaks-gradient", Severity.ERROR)
NONE = Limit(0, "parameters without gradient in train mode only", "recomputing must not change what is learned")


def check(backwards: Backwards) -> Verdict:
    if backwards.raised:
        return NotApplicable("backward raises")
    if not backwards.lost_in_train:
        return Passed()
    names = ", ".join(backwards.lost_in_train[:3])
    return Suspect(
        RULE,
        message=f"{len(backwards.lost_in_train)} parameters get no gradient in train mode: {names}, …",
        cause="re-entrant checkpointing gives none where no tensor input of the segment wants one",
        measured=float(len(backwards.lost_in_train)),
        limit=NONE,
        where=backwards.recomputed_at,
        fix="checkpoint(…, use_reentrant=False)",
    )
