"""Two positions share one vector.

What it looks at
    The rows that an ordinary batch without padding looks up for its positions.

Why it matters
    Tokens with one position vector cannot be told apart by their place: integer division, a modulo or a clamp has
    merged them.

What you see
    Nothing crashes; order within a group, or of late tokens, is not learned.

How to fix it
    Number every position::

        places = torch.arange(S) // 2    # before
        places = torch.arange(S)         # after

When it does not apply
    Positions are not looked up; all tokens look up one row (that is position-missing); relative buckets.

Where it points
    The sum with the positions.

References
    Vaswani et al. 2017, section 3.5.
"""

from __future__ import annotations

from encdoctor.evidence.positions import PositionPart, PositionReach
from encdoctor.intent import Intent
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("POS011", "position-collision", Severity.ERROR)
OWN_ROW = Limit(0, "positions that share a row", "every position needs a vector of its own")


def check(part: PositionPart, reach: PositionReach, intent: Intent) -> Verdict:
    if not part.found or part.index is None or len(set(part.index)) == 1:
        return NotApplicable(part.why or "positions are not looked up one by one")
    shared = len(part.index) - len(set(part.index))
    if not shared or reach.collision is None:
        return Passed()
    first, second = reach.collision
    return Suspect(
        RULE,
        message=f"positions {first} and {second} look up the same row, {part.index[first]}",
        cause=f"{len(part.index)} positions use {len(set(part.index))} rows",
        measured=float(shared),
        limit=OWN_ROW,
        where=(part.added, *part.made),
        fix="give every position a number of its own",
        severity=Severity.NOTE if intent.installed else None,
    )
