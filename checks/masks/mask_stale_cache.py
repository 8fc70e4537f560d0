"""A mask is built once and kept: the next batch runs under the mask of an earlier one.

What it looks at
    A batch after another one with other lengths, against the same batch first on a fresh copy; and a shorter batch
    after a longer one. Other contents under the same lengths come out right, so it is the mask that is remembered.

Why it matters
    Every batch but the first is masked by somebody else's padding: real tokens are hidden, padding is read.

What you see
    Results that depend on what was run before; right in a test that makes one call.

How to fix it
    Make the mask in every call, or key the cache by all that it depends on::

        keep = torch.arange(S, device=x.device) < lengths[:, None]      # not: if self.mask is None: self.mask = …

When it does not apply
    There is no mask. A causal triangle that is cut to the length at hand may be kept.

Where it points
    The line that keeps it.

References
    A mask belongs to a batch, not to a model.
"""

from __future__ import annotations

from encdoctor.evidence.masks import StaleMask
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("MSK019", "mask-stale-cache", Severity.ERROR)
SAME = Limit(
    1e-6,
    "relative change of a batch's outputs after a batch with other lengths",
    "the same kernels on the same numbers give the same bits; 1e-6 leaves room for threads that add in another order",
)


def check(stale: StaleMask) -> Verdict:
    if not stale.measured:
        return NotApplicable(stale.why)
    if stale.change <= SAME.value:
        return Passed(stale.change)
    raised = stale.raised
    return Suspect(
        RULE,
        message=f"after a batch with other lengths the next one {'raises' if raised else 'comes out differently'}",
        cause=f"the mask of the first batch is kept: {raised.text}"
        if raised
        else "the mask of the first batch is kept",
        measured=stale.change,
        limit=SAME,
        where=stale.kept,
        fix="make the mask in every call, or key what is kept by all that it depends on",
        trials=(Trial("forget"),),
    )
