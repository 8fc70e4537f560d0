"""A bias by distance rewards far tokens on one side.

What it looks at
    A fixed bias on the scores that depends on the distance alone: in a bidirectional encoder it must not grow with the
    distance on one side while it falls on the other.

Why it matters
    A linear bias written for causal attention, `slope * (j - i)`, is a penalty for what lies behind and a bonus,
    growing without bound, for what lies ahead.

What you see
    Attention piles up on the last tokens; longer inputs make it worse.

How to fix it
    Take the distance::

        bias = slope * (j - i)             # before
        bias = -slope * (j - i).abs()      # after

When it does not apply
    Causal attention; learned biases.

Where it points
    Where the bias is made.

References
    Press et al. 2022, ALiBi.
"""

from __future__ import annotations

from itertools import pairwise

from encdoctor.evidence.shifts import DistanceBias
from encdoctor.intent import Intent, What
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("POS013", "relative-bias-asymmetric", Severity.WARNING)
BONUS = Limit(
    0, "bias of the farthest key above that of the own position", "distance is penalised on both sides, or neither"
)


def check(bias: DistanceBias, intent: Intent) -> Verdict:
    if not bias.found:
        return NotApplicable(bias.why)
    if intent.says(What.CAUSAL):
        return NotApplicable("the encoder is declared causal: later keys are hidden")
    gains = {"back": bias.before[-1] - bias.before[0], "ahead": bias.after[-1] - bias.after[0]}
    rewarded = max(gains, key=lambda side: gains[side])
    other = min(gains.values())
    profile = bias.after if rewarded == "ahead" else bias.before
    grows = all(later >= earlier for earlier, later in pairwise(profile))
    if gains[rewarded] <= 0 or other >= 0 or not grows:
        return Passed(max(gains[rewarded], 0.0))
    return Suspect(
        RULE,
        message=f"keys {len(profile) - 1} positions {rewarded} get {gains[rewarded]:.2g} more than the own position, "
        "those on the other side less",
        cause="the bias takes the signed distance",
        measured=gains[rewarded],
        limit=BONUS,
        where=bias.places,
        fix="minus the slope times the absolute distance",
        severity=Severity.NOTE if intent.installed else None,
    )
