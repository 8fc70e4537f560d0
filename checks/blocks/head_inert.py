"""Heads repeat one another, or give nothing.

What it looks at
    For each attention the weights and the values of every head. Heads that have both in common with another to the
    bit are one head; heads whose values are zeros give nothing.

Why it matters
    The attention has fewer heads than configured. Heads that start equal and read equal maps stay equal.

What you see
    Several heads with the same picture; heads that can be cut without any loss.

How to fix it
    Give each head its own part of the projection::

        q = self.query(x)[:, None].expand(-1, heads, -1, -1)                           # before: one head, shown often
        q = self.query(x).reshape(b, s, heads, head_dim).transpose(1, 2)               # after

When it does not apply
    Keys and values that are shared by heads with queries of their own (multi-query, grouped-query attention).

Where it points
    The line that makes the scores.

References
    Vaswani et al. 2017, section 3.2.2; Shazeer 2019 (multi-query attention).
"""

from __future__ import annotations

from encdoctor.evidence.roles import Roles
from encdoctor.intent import Intent
from encdoctor.model import Limit, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("BLK021", "head-inert", Severity.WARNING)
LIMIT = Limit(
    0.0,
    "heads that repeat another one or give zeros",
    "heads with projections of their own are equal to the bit with probability zero",
)


def check(roles: Roles, intent: Intent) -> Verdict:
    inert = [site for site in roles.sites if site.inert_heads and len(site.inert_heads) < site.heads]
    if not inert:
        return Passed()
    first = inert[0]
    return Suspect(
        RULE,
        message=f"{len(first.inert_heads)} of {first.heads} heads do nothing of their own",
        cause="their weights and values are those of another head, or their values are zeros",
        measured=float(sum(len(site.inert_heads) for site in inert)),
        limit=LIMIT,
        where=tuple(dict.fromkeys(site.place for site in inert)),
        fix="split the projection into heads, so that each has its own part of it",
        severity=Severity.NOTE if intent.installed else None,
    )
