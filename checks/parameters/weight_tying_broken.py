"""Two parameters were meant to be one, and are two.

What it looks at
    Assignments in the source that tie parameters (`self.head.weight = self.embed.weight`), and whether both names are
    the same parameter when the model is built.

Why it matters
    The two drift apart from the first step. The model has more parameters than meant, and loses what tying gives.

What you see
    A head that learns slowly; a parameter count that is too high; other results after save and load.

How to fix it
    Tie last, and initialise in place::

        nn.init.normal_(self.embed.weight, std=0.02)       # not self.embed.weight = nn.Parameter(…)
        self.head.weight = self.embed.weight

When it does not apply
    No assignment ties anything, or the tie holds. Assignments under an `if` are not looked at.

Where it points
    The line that replaces one of the two, then the line that ties them.

References
    Press and Wolf 2017, Using the Output Embedding to Improve Language Models.
"""

from __future__ import annotations

from encdoctor.evidence.parts import Parts
from encdoctor.model import Limit, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("PRM004", "weight-tying-broken", Severity.ERROR)
NONE = Limit(0, "ties that do not hold", "an assignment says that both names are one parameter")


def check(parts: Parts) -> Verdict:
    if not parts.broken_ties:
        return Passed()
    return [
        Suspect(
            RULE,
            message=f"`{tie.left}` was tied to `{tie.right}`, and is another parameter"
            + (" in the same memory" if tie.in_memory else " now"),
            cause="`.data` shares memory until the next `.to()`: an optimiser sees two parameters"
            if tie.in_memory
            else "one of them was replaced after the assignment",
            measured=float(len(parts.broken_ties)),
            limit=NONE,
            where=tie.places,
            fix="initialise in place instead of replacing the parameter, or tie at the end of __init__",
            about=tie.left,
        )
        for tie in parts.broken_ties
    ]
