"""Fused and plain attention give different results.

What it looks at
    The padded batch in eval mode without gradients, once with torch's fused kernels and fast path, once with plain
    operations. Real positions are compared.

Why it matters
    The fast path runs in evaluation only: what is evaluated is not what was trained.

What you see
    Validation that is worse than training on the same data; another result under `torch.no_grad()`.

How to fix it
    Pass masks in the form that torch documents, or switch the fast path off::

        torch.backends.mha.set_fastpath_enabled(False)

When it does not apply
    Within float32's tolerance; outputs of another shape (output-shape-changed).

Where it points
    The class of the encoder.

References
    PyTorch, `torch.nn.TransformerEncoderLayer`, fast path; `torch.nn.attention.sdpa_kernel`.
"""

from __future__ import annotations

from encdoctor.evidence.modes import Repeats
from encdoctor.evidence.precision import Backends
from encdoctor.intent import Intent
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("NUM013", "backend-divergence", Severity.WARNING)
CLOSE = Limit(
    1e-3,
    "relative difference between fused and plain attention",
    "float32 kernels agree to 1e-5 over a dozen layers, half-precision models to 1e-3",
)


def check(intent: Intent, backends: Backends, repeats: Repeats | None) -> Verdict:
    if repeats is not None and (repeats.chance > 0 or repeats.state > 0):
        return NotApplicable("the same call gives another result each time, so runs cannot be compared")
    if backends.difference is None:
        return NotApplicable(backends.why)
    if backends.difference <= CLOSE.value:
        return Passed(backends.difference)
    return Suspect(
        RULE,
        message=f"fused and plain attention differ by {backends.difference:.2g} at real positions",
        cause="a mask or an option means something else to torch's fused path than to its plain one",
        measured=backends.difference,
        limit=CLOSE,
        where=(backends.place,),
        fix="pass boolean masks, or switch the fast path off and compare",
        severity=Severity.NOTE if intent.installed else None,
    )
