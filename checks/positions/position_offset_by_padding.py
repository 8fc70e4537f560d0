"""Left padding shifts the positions of real tokens.

What it looks at
    The same sentences with padding on the right and on the left, the mask right in both; only where left padding is
    declared, for every encoder with absolute positions moves under it.

Why it matters
    A tokenizer that pads on the left makes a word's position depend on the longest sentence in the batch.

What you see
    The same sentence gets another vector in another batch, though the mask is right.

How to fix it
    Count positions over real tokens::

        places = torch.arange(S).expand(B, S)                    # before
        places = (mask.long().cumsum(1) - 1).clamp(min=0)        # after

When it does not apply
    Padding is on the right; positions are rotary or relative.

Where it points
    Where positions are looked up and added.

References
    transformers, `position_ids` from `attention_mask` in GPT-2's generation.
"""

from __future__ import annotations

from encdoctor.evidence.shifts import LeftPadding
from encdoctor.intent import Intent
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("POS006", "position-offset-by-padding", Severity.WARNING)
SHIFT = Limit(
    1e-6,
    "relative change of real outputs when padding moves to the left",
    "round-off reaches 1e-7 where tables are float32; absolute positions move outputs by more than 1e-2",
)


def check(left: LeftPadding, intent: Intent) -> Verdict:
    if not left.measured:
        return NotApplicable(left.why)
    if left.change <= SHIFT.value:
        return Passed(left.change)
    return Suspect(
        RULE,
        message="left padding, which is declared, shifts the positions of real tokens",
        cause="positions are counted from the first column, padding included",
        measured=left.change,
        limit=SHIFT,
        where=left.added,
        fix="count positions over real tokens: (mask.cumsum(1) - 1).clamp(min=0)",
        severity=Severity.NOTE if intent.installed else None,
    )
