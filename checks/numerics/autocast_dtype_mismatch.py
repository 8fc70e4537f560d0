"""float32 and half precision meet in an operation that takes only one.

What it looks at
    The padded batch in float16, in bfloat16 and under autocast. Where torch refuses because of two dtypes, the recorded
    part of the run shows where the float32 tensor was made and where it met the half one.

Why it matters
    The encoder cannot be trained with mixed precision, or cannot be deployed in half.

What you see
    "expected m1 and m2 to have the same dtype", "expected scalar type Half but found Float", "Index put requires the
    source and destination dtypes match".

How to fix it
    Make masks, tables and buffers in the dtype of what they meet::

        mask = torch.zeros(t, t).masked_fill(far, -torch.inf)               # before: always float32
        mask = torch.zeros(t, t, dtype=x.dtype).masked_fill(far, -torch.inf)   # after

When it does not apply
    It runs in half, or fails there for another reason. Where autocast runs and only a model in half does not, it is a
    note, unless half precision is declared.

Where it points
    Where the float32 tensor is made, then where it meets the half one.

References
    PyTorch, Automatic mixed precision, "ops that can autocast to float32".
"""

from __future__ import annotations

from encdoctor.evidence.numerics import HalfPrecision, HalfRun
from encdoctor.intent import Intent, What
from encdoctor.model import Limit, Passed, Place, Rule, Severity, Suspect, Verdict

RULE = Rule("NUM010", "autocast-dtype-mismatch", Severity.WARNING)
NONE = Limit(0.0, "kinds of half precision in which dtypes clash", "autocast and half models are how encoders are run")


def check(intent: Intent, half: HalfPrecision) -> Verdict:
    clashing = [run for run in half.runs if run.raised is not None and run.clashes]
    if not clashing:
        return Passed()
    if all(run.unregistered for run in clashing):
        return Passed(reason="the float32 tensor is held without being registered; that is another rule's to say")
    autocast = [run for run in clashing if run.how.startswith("autocast")]
    first = (autocast or clashing)[0]
    assert first.raised is not None
    fused = all(run.fused for run in clashing)
    return Suspect(
        RULE,
        message=f"does not run in {', '.join(run.how for run in clashing)}: {first.raised.text}",
        cause="torch's fast path does not run under autocast; its plain path does"
        if fused
        else "a tensor is float32 whatever the model's dtype is",
        measured=float(len(clashing)),
        limit=NONE,
        where=tuple(dict.fromkeys(_places(first))),
        fix="leave autocast out in eval, or torch.backends.mha.set_fastpath_enabled(False)"
        if fused
        else "make it with dtype=x.dtype, or cast it with .to(x.dtype) where it meets the activations",
        severity=None if (autocast and not fused) or intent.says(What.HALF) else Severity.NOTE,
    )


def _places(run: HalfRun) -> tuple[Place, ...]:
    return (*run.widened, *(run.raised.places if run.raised else ()))
