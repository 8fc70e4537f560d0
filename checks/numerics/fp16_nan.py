"""NaN or infinity in half precision.

What it looks at
    The padded batch in float16, bfloat16 and under autocast, against float32. Where real outputs stop being finite, the
    recorded run is walked to the first operation whose inputs are finite and whose output is not.

Why it matters
    Mixed precision is how encoders are trained. A sum of squares above 65504, an eps that rounds to 0, or an
    exponential that overflows turns the loss into NaN.

What you see
    NaN only in half precision, at once or after some training, when activations have grown.

How to fix it
    Compute that operation in float32::

        y = risky(x.float()).to(x.dtype)

    Norms, softmax and statistics belong in float32; eps has to be at least 1e-7 in float16 (1e-5 is usual).

When it does not apply
    float32 is not finite either; a model that cannot run in a dtype at all (an error) is not meant here.

Where it points
    The first operation that makes NaN or infinity.

References
    Micikevicius et al. 2018, Mixed Precision Training.
"""

from __future__ import annotations

from encdoctor.evidence.numerics import HalfPrecision
from encdoctor.limits import HALF_MAX
from encdoctor.model import Limit, Passed, Rule, Severity, Suspect, Trial, Undecided, Verdict

RULE = Rule("NUM002", "fp16-nan", Severity.ERROR)
FINITE = Limit(0.0, "share of real outputs that are not finite", HALF_MAX.because)


def check(half: HalfPrecision) -> Verdict:
    if not half.finite32:
        return Undecided("the outputs are not finite in float32 either", "mend that first")
    bad = [run for run in half.runs if run.bad_share > 0 and not (run.first and run.first.masking)]
    if not bad:
        return Passed()
    run = bad[0]
    if run.first is None:
        return Undecided(
            f"{run.bad_share:.0%} of the real outputs are not finite in {run.how}, "
            "but not when attention is computed step by step",
            "run with torch.nn.attention.sdpa_kernel(SDPBackend.MATH) and compare",
        )
    first = run.first
    return Suspect(
        RULE,
        message=f"{first.operation} gives {first.value} in {', '.join(r.how for r in bad)}",
        cause=f"the inputs of {first.operation} are finite, its output is not: {run.dtype} cannot hold the result",
        measured=run.bad_share,
        limit=FINITE,
        where=(first.place,),
        fix="compute this operation in float32 and cast the result back",
        trials=(Trial("float32", (first.key,)),),
    )
