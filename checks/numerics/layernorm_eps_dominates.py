"""The eps of a norm is larger than the variance it stands beside.

What it looks at
    eps of every torch norm against the median variance of the rows that it normalises, on random input.

Why it matters
    A norm divides by √(variance + eps). Where eps is the larger part, the output is not normalised: its size follows
    the input's, which is what the norm was to prevent.

What you see
    Activations that stay tiny after a norm; a model that reacts to the scale of its input; slow starts.

How to fix it
    Use the usual eps, or give the input a scale of about 1::

        nn.LayerNorm(width, eps=1e-1)     # before
        nn.LayerNorm(width, eps=1e-5)     # after

When it does not apply
    The ratio is below 0.3; between 0.3 and 1 it is a note.

Where it points
    The norm's call.

References
    Ba et al. 2016; PyTorch, `torch.nn.LayerNorm`.
"""

from __future__ import annotations

from encdoctor.evidence.norms import NormEps, Norms
from encdoctor.intent import Intent
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("NUM015", "layernorm-eps-dominates", Severity.WARNING)
LARGER = Limit(1.0, "eps over variance", "above 1 eps makes the divisor; healthy encoders reach 0.03 when fresh")
# Above this the output is smaller than it should be by more than an eighth (1/√1.3).
WORTH_A_NOTE = 0.3


def check(intent: Intent, norms: Norms) -> Verdict:
    if not norms.eps:
        return NotApplicable("no norm of torch was recorded")
    off = [norm for norm in norms.eps if norm.ratio > WORTH_A_NOTE]
    if not off:
        return Passed(max(norm.ratio for norm in norms.eps))
    worst = max(off, key=lambda norm: norm.ratio)
    return Suspect(
        RULE,
        message=f"eps {worst.eps:g} against a variance of {worst.variance:.2g}: {worst.module or 'a norm'} hardly acts",
        cause=_cause(worst),
        measured=worst.ratio,
        limit=LARGER,
        where=tuple(dict.fromkeys(norm.place for norm in sorted(off, key=lambda norm: -norm.ratio))),
        fix="use eps=1e-5, or scale the input up",
        severity=Severity.NOTE if worst.ratio <= LARGER.value or intent.installed else None,
    )


def _cause(norm: NormEps) -> str:
    return "eps is large" if norm.eps > 1e-4 else "what comes in is tiny"
