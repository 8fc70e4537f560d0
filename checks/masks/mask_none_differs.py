"""Without a mask the encoder computes something else than with a mask that keeps everything.

What it looks at
    A batch without any padding, once without a mask and once with one that hides nothing.

Why it matters
    Both say the same. Where results differ, single sentences and equal-length batches, for which no mask is built, are
    treated unlike all others: another branch, another default mask, padding of the encoder's own that is read.

What you see
    A sentence gets another result alone, without a mask, than in a batch.

How to fix it
    Make the missing mask one that keeps everything, and take one path::

        keep = torch.ones_like(ids, dtype=torch.bool) if keep is None else keep

When it does not apply
    The mask is required, or read off the ids.

Where it points
    The first operation that computes another result.

References
    The two branches of `if mask is None` have to agree.
"""

from __future__ import annotations

from encdoctor.evidence.influence import InfluenceMatrix
from encdoctor.evidence.masks import NoMask
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("MSK025", "mask-none-differs", Severity.WARNING)
SAME = Limit(
    1e-6,
    "relative change of outputs between no mask and one that keeps everything",
    "rounding of float32 parts inside a float64 model reaches 9e-8",
)
SHARE_IN_OWN = 0.5


def check(no_mask: NoMask, matrix: InfluenceMatrix) -> Verdict:
    if not no_mask.measured:
        return NotApplicable(no_mask.why)
    if no_mask.change <= SAME.value or no_mask.change_own < SHARE_IN_OWN * no_mask.change:
        return Passed(no_mask.change)
    return Suspect(
        RULE,
        message="no mask and a mask that keeps everything give different results",
        cause=_cause(matrix),
        measured=no_mask.change,
        limit=SAME,
        where=(no_mask.starts,) if no_mask.starts is not None else (),
        fix="where no mask is given, make one that keeps everything, and take the same path",
    )


def _cause(matrix: InfluenceMatrix) -> str:
    future, padded = matrix.future(), matrix.future_padded()
    if future is not None and padded is not None and future[0] == 0 < padded[0]:
        return "without a mask attention is causal"
    return "the two calls take different paths"
