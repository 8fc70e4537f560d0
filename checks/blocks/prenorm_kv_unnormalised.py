"""Queries come from the normalised stream, keys and values from the raw one (or the reverse).

What it looks at
    For each self-attention the three projections are followed back to the same point of the stream, and the norms on
    the way are counted.

Why it matters
    In a pre-norm stack the raw stream grows with depth. Scores and values then grow with it, while the queries do not:
    attention gets sharper layer by layer, and what it writes back is no longer of one scale.

What you see
    A deep pre-norm model that is less stable than its design promises; attention that becomes one-hot in late layers.

How to fix it
    Normalise once, and hand the result to all three::

        x = x + self.attention(self.norm(x), x, x)       # before

        h = self.norm(x)
        x = x + self.attention(h, h, h)                  # after

When it does not apply
    Cross-attention, whose keys and values have a norm of their own or none.

Where it points
    The line that applies the norm, then the projection of the queries.

References
    Xiong et al. 2020, figure 1(b): the norm stands in front of the whole sublayer.
"""

from __future__ import annotations

from encdoctor.evidence.roles import Role, Roles, SiteRoles
from encdoctor.intent import Intent
from encdoctor.model import Limit, Passed, Place, Rule, Severity, Suspect, Verdict

RULE = Rule("BLK004", "prenorm-kv-unnormalised", Severity.WARNING)
LIMIT = Limit(
    0.0,
    "self-attentions whose queries, keys and values are not normalised alike",
    "Pre-LN norms the input of the sublayer, so that all three projections read the same tensor (Xiong et al. 2020)",
)


def check(roles: Roles, intent: Intent) -> Verdict:
    mixed = [site for site in roles.sites if site.self_attention and _differs(site)]
    if not mixed:
        return Passed()
    first = mixed[0]
    raw = [name for name, role in _named(first) if not role.normed]
    return Suspect(
        RULE,
        message=f"the {' and '.join(raw)} of attention read the raw stream, the rest the normalised one",
        cause=f"in {len(mixed)} of {len(roles.sites)} attentions the norm acts on some of query, key and value only",
        measured=float(len(mixed)),
        limit=LIMIT,
        where=tuple(dict.fromkeys(place for site in mixed for place in _places(site))),
        fix="normalise the stream once and give the result to query, key and value",
        severity=Severity.NOTE if intent.installed else None,
    )


def _named(site: SiteRoles) -> list[tuple[str, Role]]:
    return [("query", site.query), ("key", site.key), ("value", site.value)]


def _differs(site: SiteRoles) -> bool:
    mapped = [role for role in (site.query, site.key, site.value) if role.maps]
    return len({role.normed for role in mapped}) > 1


def _places(site: SiteRoles) -> list[Place]:
    norms = [role.norm for _, role in _named(site) if role.norm is not None]
    return [*norms, site.query.place]
