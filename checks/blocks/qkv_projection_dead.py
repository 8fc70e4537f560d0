"""Two projections that feed each other are both zero: neither can ever learn.

What it looks at
    Queries and keys together, and values together with the map behind the heads. A product learns while one of its two
    factors is not zero; where both are, each one's gradient is zero.

Why it matters
    Attention stays uniform for ever, or adds nothing for ever. It is a saddle that no step leaves.

What you see
    Uniform attention, or no attention at all, that does not change in training; weights that stay exactly zero.

How to fix it
    Leave at most one of the two at zero::

        nn.init.zeros_(self.value.weight); nn.init.zeros_(self.out.weight)      # before
        nn.init.zeros_(self.out.weight)                                         # after

When it does not apply
    One zero factor: queries at zero, or a last map at zero, are good habits (the branch starts as nothing and grows).

Where it points
    The calls of the projections.

References
    Yang et al. 2022, Tensor Programs V (queries at zero); Zhang et al. 2019, Fixup (last maps at zero).
"""

from __future__ import annotations

from encdoctor.evidence.roles import Roles, SiteRoles
from encdoctor.intent import Intent
from encdoctor.model import Limit, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("BLK020", "qkv-projection-dead", Severity.WARNING)
LIMIT = Limit(
    0.0,
    "largest spread over tokens of a pair of projections, relative to its size",
    "the gradient of each factor of a product contains the other: both at zero stay there",
)


def check(roles: Roles, intent: Intent) -> Verdict:
    dead = [site for site in roles.sites if _dead_pair(site)]
    if not dead:
        return Passed()
    pair = _dead_pair(dead[0])
    return Suspect(
        RULE,
        message=f"{pair} are both zero",
        cause=f"in {len(dead)} of {len(roles.sites)} attentions {pair} are zero: no gradient reaches either",
        measured=0.0,
        limit=LIMIT,
        where=tuple(dict.fromkeys(p for site in dead for p in (site.query.place, site.value.place, site.place))),
        fix="draw the weights of one of the two at random",
        severity=Severity.NOTE if intent.installed else None,
    )


def _dead_pair(site: SiteRoles) -> str:
    """Names the two projections of a product that are both zero, "" where there are none."""
    if site.query.spread == 0 and site.key.spread == 0:
        return "queries and keys"
    if site.value.spread == 0 and site.output_dead:
        return "values and the map behind the heads"
    return ""
