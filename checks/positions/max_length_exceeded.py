"""What happens beyond the last position.

What it looks at
    The encoder is called with one token more than its position table has rows, and with the longest length that it
    declares; the call is stopped where positions are added.

Why it matters
    A clear error is good. A clamped or wrapped index gives late tokens the position of others, silently. A table
    shorter than the length that is promised crashes on the first long text.

What you see
    "index out of range in self", a size mismatch, or nothing, and worse results on long texts.

How to fix it
    Refuse what is too long, and make the table as long as you promise::

        if ids.shape[1] > self.max_length:
            raise ValueError(f"got {ids.shape[1]} tokens, at most {self.max_length}")

When it does not apply
    Rotary, relative or computed positions, which have no last row.

Where it points
    The line that raised, or the sum with the positions.

References
    PyTorch, `torch.nn.Embedding`.
"""

from __future__ import annotations

from encdoctor.evidence.positions import PositionPart, PositionReach, Reach
from encdoctor.intent import Intent
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("POS005", "max-length-exceeded", Severity.WARNING)
REACHED = Limit(
    0, "lengths that are promised and fail", "a length that an attribute or a configuration names has to go through"
)
OWN_ROW = Limit(0, "late tokens with another's position", "two tokens of one position cannot be told apart")
CLEAR = Limit(0, "unclear errors beyond the last position", "an error that names the longest length saves the search")


def check(part: PositionPart, reach: PositionReach, intent: Intent) -> Verdict:
    if not reach.measured:
        return NotApplicable(reach.why)
    installed = Severity.NOTE if intent.installed else None
    declared = reach.declared
    if declared is not None and declared.raised and not declared.deliberate:
        return _suspect(
            declared, part, f"{declared.length} tokens fail, which {reach.declared_by} promises: {declared.raised}",
            REACHED, installed, "make the table as long as what is promised, with room for offsets",
        )  # fmt: skip
    beyond = reach.beyond
    if beyond is None or beyond.deliberate or reach.collision is not None:
        return Passed()  # positions that already collide within the table are another rule's
    if beyond.repeats is not None and beyond.positions == beyond.length:
        return _suspect(
            beyond, part, f"token {beyond.length} silently gets the position of token {beyond.repeats + 1}", OWN_ROW,
            installed, "raise a ValueError for more tokens than there are positions",
        )  # fmt: skip
    if not beyond.raised:
        return Passed()
    return _suspect(
        beyond, part, f"{beyond.length} tokens fail with an unclear error: {beyond.raised}", CLEAR, Severity.NOTE,
        f"raise a ValueError that names the longest length, {reach.rows}",
    )  # fmt: skip


def _suspect(
    tried: Reach, part: PositionPart, message: str, limit: Limit, severity: Severity | None, fix: str
) -> Suspect:
    return Suspect(
        RULE,
        message=message,
        cause=f"the position table {part.name or 'that is added'} has {part.rows} rows",
        measured=1.0,
        limit=limit,
        where=(*tried.places, part.added, *part.made),
        fix=fix,
        severity=severity,
    )
