"""Queries are the keys or the values: one projection serves two roles, and another is left over.

What it looks at
    Which map, and which part of a fused one, queries, keys and values come from. Where queries are the same tensor as
    keys or values while a map of the attention is not used at all, the names were mixed up.

Why it matters
    With queries equal to keys each token attends to itself most, and scores are symmetric: "a looks at b" and "b looks
    at a" cannot be told apart. One of the three maps is dead weight.

What you see
    Attention that hugs the diagonal; a projection whose weights never move.

How to fix it
    Use each map once::

        q, k, v = self.query(x), self.query(x), self.value(x)      # before
        q, k, v = self.query(x), self.key(x), self.value(x)        # after

When it does not apply
    Queries and keys that are tied on purpose (Reformer) leave no map over.

Where it points
    The line that calls the projection which is used twice.

References
    Vaswani et al. 2017, section 3.2.2; Kitaev et al. 2020, Reformer, section 2 (shared-QK).
"""

from __future__ import annotations

from encdoctor.evidence.roles import Roles
from encdoctor.intent import Intent
from encdoctor.model import Limit, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("BLK017", "qkv-mixed-up", Severity.ERROR)
LIMIT = Limit(
    0.0,
    "attentions whose queries are their keys or values while a map is left over",
    "three roles have three projections; two that are one tensor to the bit come from one call",
)


def check(roles: Roles, intent: Intent) -> Verdict:
    mixed = [site for site in roles.sites if site.crossed.startswith("query")]
    if not mixed:
        return Passed()
    first = mixed[0]
    return Suspect(
        RULE,
        message=f"{first.crossed} are the same projection",
        cause=f"{first.crossed} come from one map, and {first.spare} is not used",
        measured=float(len(mixed)),
        limit=LIMIT,
        where=tuple(dict.fromkeys(place for site in mixed for place in (site.query.place, site.key.place, site.place))),
        fix="give queries, keys and values each their own projection",
        severity=Severity.NOTE if intent.installed else None,
    )
