"""Zeros in the padding, the usual content, turn real outputs into NaN.

What it looks at
    A batch whose padded inputs are zeros, or the padding id, where the same batch without padding is finite; then the
    first operation that makes NaN out of numbers.

Why it matters
    A mask gives padding the weight 0, and 0 · NaN is NaN: one division by the norm of a zero vector, one logarithm of 0
    spoils every token of the sample.

What you see
    NaN for ragged batches only, from the first step on.

How to fix it
    Keep the division away from 0::

        x = x / x.norm(dim=-1, keepdim=True).clamp(min=1e-6)

When it does not apply
    There is no mask. NaN that *stands* in the padding spreads through every softmax attention: that is the caller's.

Where it points
    The operation that makes the first NaN.

References
    IEEE 754: 0 · NaN is NaN, 0/0 is NaN.
"""

from __future__ import annotations

from encdoctor.evidence.masks import ZeroPadding
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("MSK012", "padding-content-poison", Severity.ERROR)
FINITE = Limit(
    0.0, "batches whose real outputs are not finite", "padding has weight 0, whatever ordinary number it holds"
)


def check(zeros: ZeroPadding) -> Verdict:
    if not zeros.measured:
        return NotApplicable(zeros.why)
    first = zeros.first
    if not zeros.bad or first is None:
        return Passed()
    if not zeros.other_content and (first.masking or "softmax" in first.operation):
        return Passed(reason="masking makes the NaN, not what stands in the padding")
    return Suspect(
        RULE,
        message="zeros in the padding make real outputs NaN",
        cause=f"{first.operation} gives {first.value} for a padded position, and weight 0 times NaN is NaN",
        measured=1.0,
        limit=FINITE,
        where=(first.place,),
        fix="clamp the divisor away from 0, or set such positions to a number after the operation",
        trials=(Trial("finite", (first.key,)),),
    )
