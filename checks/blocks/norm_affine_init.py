"""The gain of a norm on the way starts at (nearly) zero.

What it looks at
    The gain of every norm that acts on the stream or in front of a sublayer.

Why it matters
    What such a norm gives is its shift alone: the same vector for every token. Nothing upstream gets a gradient worth
    the name.

What you see
    Constant or tiny outputs at the start; gradients that vanish above one norm; a loss that stays where it is.

How to fix it
    Start gains at one and shifts at zero::

        self.weight = nn.Parameter(torch.zeros(d_model))     # before
        self.weight = nn.Parameter(torch.ones(d_model))      # after

    A loop that sets all parameters of one axis to zero sets gains to zero too: leave norms out.

When it does not apply
    A norm at the end of a branch may start at zero (the block then starts as the identity); gains that are stored as an
    offset from one.

Where it points
    The line that applies the norm, then the lines that draw weights.

References
    Ba et al. 2016, Layer Normalization; Goyal et al. 2017, section 5.1 (zero gain at the end of a branch).
"""

from __future__ import annotations

from encdoctor.evidence.initialisation import Initialisation
from encdoctor.intent import Intent
from encdoctor.model import Limit, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("BLK013", "norm-affine-init", Severity.WARNING)
LIMIT = Limit(
    1e-2,
    "largest gain of a norm on the stream",
    "gains start at one; the norms of 120 healthy encoders that are not at the end of a branch have 1 there",
)


def check(initialisation: Initialisation, intent: Intent) -> Verdict:
    closed = [g for g in initialisation.gains if g.largest < LIMIT.value]
    faults = [g for g in closed if not g.ends_branch]
    if not faults:
        return Passed(min((g.largest for g in initialisation.gains), default=1.0))
    return Suspect(
        RULE,
        message=f"the gain of {faults[0].name} starts near zero",
        cause="what the norm gives is its shift alone, the same for every token",
        measured=min(g.largest for g in faults),
        limit=LIMIT,
        where=tuple(dict.fromkeys((*(g.place for g in faults), *initialisation.drawn_at))),
        fix="start the gains of norms at one",
        trials=(Trial("unit_gains", tuple(g.name for g in faults)),),
        severity=Severity.NOTE if intent.installed else None,
    )
