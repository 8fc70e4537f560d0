"""The same sentence gets another result behind more padding, though what stands in the padding does not matter.

What it looks at
    Sentences of several lengths, alone and padded, in float64; then operation by operation the first that computes
    other numbers at real positions when the sequence is longer.

Why it matters
    Padding that is set to zero is still there: a convolution reads zeros where a sentence alone has a border, a mean
    over time divides by the padded length, positions counted from the end move. Results depend on the longest sentence
    of the batch.

What you see
    A sentence gets another vector alone than in a batch; results change with the bucket or the padding length.

How to fix it
    Let nothing read the padded length: divide by the number of real tokens, count positions from the front, use norms
    over features, and make what a convolution sees behind the sentence the same as at its border.

When it does not apply
    There is no mask; padding's content already moves outputs (other rules); the encoder is meant for padding on the
    left or for one fixed length. Differences below 1e-6 are rounding or cannot be told from it.

Where it points
    The first operation that computes another result.

References
    Wu and He 2018 (Group Normalization): statistics over all positions of a group.
"""

from __future__ import annotations

from encdoctor.evidence.leaks import PaddingAmount, Way
from encdoctor.intent import Intent
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Undecided, Verdict

RULE = Rule("MSK024", "padding-amount-dependence", Severity.ERROR)
ROUNDING = Limit(
    1e-6,
    "relative change of real outputs behind more padding",
    "rounding of float32 parts inside a float64 model reaches 9e-8; true faults start at 7e-6",
)
CERTAINLY_ROUNDING = 1e-7
# In the model's own dtype the change has to be there too, not only rounding.
SHARE_IN_OWN = 0.5


def check(amount: PaddingAmount, intent: Intent) -> Verdict:
    if not amount.measured:
        return NotApplicable(amount.why)
    if amount.change <= CERTAINLY_ROUNDING or amount.change_own < SHARE_IN_OWN * amount.change:
        return Passed(amount.change)
    if amount.change <= ROUNDING.value:
        return Undecided(f"outputs differ by {amount.change:.2g}, which may be rounding", "a longer padding")
    entry = amount.entry
    if entry is not None and entry.way is Way.POOLING:
        return Passed(amount.change, "the pooling depends on it")
    return Suspect(
        RULE,
        message=f"{amount.longest - amount.length} more padded positions change the result of the same sentence",
        cause=f"{entry.operation} in {entry.module or 'forward'} is the first to compute other numbers"
        if entry is not None
        else "where it starts was not seen",
        measured=amount.change,
        limit=ROUNDING,
        where=(entry.place,) if entry is not None else (),
        fix="let nothing read the padded length: divide by the number of real tokens, count positions from the front",
    )
