"""Half precision gives another result, not a rougher one.

What it looks at
    The padded batch in float16, bfloat16 and under autocast against float32. Where the difference is large, every
    module's input and output are compared, and the first that takes in what agrees and puts out what does not is
    named.

Why it matters
    Numbers that do not fit, positions that collide, sums that stop growing: the encoder that runs in half is another
    one.

What you see
    Metrics that fall when mixed precision is switched on, without any NaN.

How to fix it
    Compute that module's critical part in float32::

        angles = position * rate                              # before: in x.dtype
        angles = position.float() * rate.float()              # after

When it does not apply
    Below half of the largest output; routers whose choice may flip are not far from it (26 % for Switch Transformers).

Where it points
    The class of the module where the results part.

References
    Micikevicius et al. 2018; Kalamkar et al. 2019 (bfloat16).
"""

from __future__ import annotations

from encdoctor.evidence.gradients import Gradients
from encdoctor.evidence.modes import Repeats
from encdoctor.evidence.precision import Divergence
from encdoctor.intent import Intent
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("NUM011", "precision-divergence", Severity.WARNING)
FAR = Limit(
    0.5,
    "largest difference from float32, relative to the largest output",
    "sound encoders reach 0.01, those with cosine attention or routers 0.19 to 0.26 in bfloat16",
)

# Round-off of float16 times this is of the size of the signal.
AMPLIFIED = 1e3


def check(intent: Intent, divergence: Divergence, gradients: Gradients | None, repeats: Repeats | None) -> Verdict:
    if divergence.error <= FAR.value:
        return Passed(divergence.error)
    if repeats is not None and (repeats.chance > 0 or repeats.state > 0):
        return NotApplicable("the same call gives another result each time, so runs cannot be compared")
    if divergence.jumps:
        return Passed(divergence.error, f"{divergence.jumps} jumps where a number moves a little")
    if gradients is not None and gradients.growth() > AMPLIFIED:
        return Passed(divergence.error, "any change is amplified a thousandfold; gradient-exploding says where")
    where = divergence.module or "the encoder"
    return Suspect(
        RULE,
        message=f"{divergence.how} differs from float32 by {divergence.error:.2g} of the largest output",
        cause=f"in {where} the error grows from {divergence.before:.2g} to {divergence.after:.2g}",
        measured=divergence.error,
        limit=FAR,
        where=(divergence.place,),
        fix="compute the sums, norms, angles or scores there in float32",
        severity=Severity.NOTE if intent.installed else None,
    )
