"""A hand-written norm divides by zero.

What it looks at
    Norms that are written out are run by themselves on rows of zeros and of equal values, in the model's own dtype
    and in float16, where an eps below 6e-8 rounds to 0.

Why it matters
    Padding is often zeros, and a dead or constant feature row has no variance. 0/0 is NaN, and attention spreads it to
    the whole sample.

What you see
    NaN as soon as a batch is padded, or only under mixed precision.

How to fix it
    Put an eps under the root that the dtype can hold, or compute in float32::

        x * x.pow(2).mean(-1, keepdim=True).rsqrt()                      # before
        x * (x.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt()             # after

When it does not apply
    torch's own norms, which compute statistics in float32; a norm that casts to float32 itself. Where float16 alone is
    affected, it is a note.

Where it points
    The root in the norm.

References
    IEEE 754 binary16: smallest subnormal 5.96e-8; Ba et al. 2016.
"""

from __future__ import annotations

from encdoctor.evidence.norms import HandNorm, Norms
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("NUM008", "layernorm-eps-underflow", Severity.WARNING)
FINITE = Limit(
    0.0,
    "dtypes in which a row without variance is not finite",
    "eps is there for such rows; 5.96e-8 is the smallest number of float16",
)


def check(norms: Norms) -> Verdict:
    if not norms.written and not norms.eps:
        return NotApplicable("no norm was recognised")
    return [_suspect(norm) for norm in norms.written] or Passed()


def _suspect(norm: HandNorm) -> Suspect:
    half_only = norm.bad == ("float16",)
    return Suspect(
        RULE,
        message=f"{norm.class_name} makes NaN or infinity of a row of {norm.row} in {' and '.join(norm.bad)}",
        cause="eps rounds to 0 in float16" if half_only else "nothing keeps the divisor away from 0",
        measured=float(len(norm.bad)),
        limit=FINITE,
        where=(norm.place,),
        fix="add an eps of at least 1e-6 under the root, and compute the statistics in float32",
        severity=Severity.NOTE if half_only else None,
        about=norm.class_name,
    )
