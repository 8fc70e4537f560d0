"""Attention mixes keys, or the raw input, instead of the values.

What it looks at
    Which tensor the attention weights are multiplied with. Where that is the keys, or the stream itself, while a map of
    the attention is not used at all, the wrong name was written.

Why it matters
    What a token is found by and what it says are then one thing. The value projection is dead weight, and with the raw
    input the sublayer can only average what is there.

What you see
    A value projection whose weights never move; a model that is weaker than it should be. Nothing crashes.

How to fix it
    Multiply with the values::

        out = weights @ k      # before
        out = weights @ v      # after

When it does not apply
    Designs with one projection for keys and values, or without a projection of values, leave no map over.

Where it points
    The line that makes what the weights are multiplied with, and the one that makes the scores.

References
    Vaswani et al. 2017, equation 1.
"""

from __future__ import annotations

from encdoctor.evidence.roles import Roles, SiteRoles
from encdoctor.intent import Intent
from encdoctor.model import Limit, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("BLK028", "value-from-wrong-tensor", Severity.ERROR)
LIMIT = Limit(
    0.0,
    "attentions that mix something else than their values while a map is left over",
    "the weights multiply the values (Vaswani et al. 2017, equation 1), which have a projection of their own",
)


def check(roles: Roles, intent: Intent) -> Verdict:
    wrong = [site for site in roles.sites if _is_wrong(site)]
    if not wrong:
        return Passed()
    first = wrong[0]
    what = "the stream itself" if first.value.raw else "the keys"
    return Suspect(
        RULE,
        message=f"attention mixes {what} instead of the values",
        cause=f"the weights are multiplied with {what}, and {first.spare} is not used",
        measured=float(len(wrong)),
        limit=LIMIT,
        where=tuple(dict.fromkeys(place for site in wrong for place in (site.mixed_at, site.place))),
        fix="multiply the attention weights with the projected values",
        severity=Severity.NOTE if intent.installed else None,
    )


def _is_wrong(site: SiteRoles) -> bool:
    return site.crossed == "key and value" or (bool(site.spare) and site.value.raw and not site.value.maps)
