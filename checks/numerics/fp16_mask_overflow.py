"""The mask's constant does not fit into half precision.

What it looks at
    The padded batch in float16 and under float16 autocast. The fault is here when a fill is refused because it cannot
    be converted, or when the first operation that makes NaN or infinity takes part in masking.

Why it matters
    −1e9 lies far outside float16, whose largest number is 65504. `masked_fill` raises; arithmetic turns the constant
    into −inf, and 0 · −inf, or −inf − (−inf), into NaN.

What you see
    "value cannot be converted to type c10::Half without overflow"; NaN only with mixed precision; a loss scale that
    keeps shrinking.

How to fix it
    Take the constant from the dtype, and choose with `where` instead of multiplying::

        scores = scores.masked_fill(~keep, torch.finfo(scores.dtype).min)

When it does not apply
    The fault does not show in float16; bfloat16 has float32's range.

Where it points
    The fill, or the line where the constant is registered.

References
    IEEE 754 binary16; pytorch/pytorch, `masked_fill` "without overflow".
"""

from __future__ import annotations

import re

from encdoctor.evidence.numerics import HalfPrecision, HalfRun
from encdoctor.limits import HALF_MAX
from encdoctor.model import Limit, Passed, Place, Rule, Severity, Suspect, Trial, Undecided, Verdict

RULE = Rule("NUM001", "fp16-mask-overflow", Severity.WARNING)
OVERFLOW = re.compile(r"cannot be converted to type .*Half without overflow(?:: (?P<value>[-\d.e+]+))?")
FINITE = Limit(0.0, "share of real outputs that are not finite", HALF_MAX.because)


def check(half: HalfPrecision) -> Verdict:
    if not half.finite32:
        return Undecided("the outputs are not finite in float32 either", "mend that first")
    for run in half.runs:
        if run.dtype != "float16":
            continue
        refused = OVERFLOW.search(run.raised.text) if run.raised is not None else None
        if refused is not None and run.raised is not None:
            return _suspect(run, run.raised.places, f"a fill is refused: {run.raised.text}", 1.0, ())
        if run.first is not None and run.first.masking:
            places = (run.first.defined_at, run.first.place) if run.first.defined_at else (run.first.place,)
            how = f"masking gives {run.first.value} at {run.first.operation}"
            return _suspect(run, places, how, run.bad_share, (Trial("finite", (run.first.key,)),))
    return Passed()


def _suspect(
    run: HalfRun, places: tuple[Place, ...], how: str, share: float, trials: tuple[Trial, ...]
) -> Suspect:
    return Suspect(
        RULE,
        message=f"in {run.how} {how}",
        cause="the constant that hides scores is outside float16's range of ±65504",
        measured=share,
        limit=FINITE,
        where=places,
        fix="use torch.finfo(scores.dtype).min as the fill, with masked_fill or where",
        trials=trials,
    )
