"""Attention weights do not sum to 1.

What it looks at
    In eval mode and without padding, the weights of every site are summed over the keys; and whether one softmax feeds
    another.

Why it matters
    Values are no longer averaged but shrunk, grown, or, after a second softmax, averaged nearly evenly: its inputs lie
    between 0 and 1, so that no key can get more than e times the weight of another.

What you see
    Attention that stays flat; outputs whose size depends on the length; a model that behaves as if attention were off.

How to fix it
    Normalise once, and leave the result alone::

        weights = scores.softmax(-1) / math.sqrt(head_dim)       # before
        weights = (scores / math.sqrt(head_dim)).softmax(-1)     # after

When it does not apply
    Something learned gates the weights, a part of them is dropped on purpose (sinks, registers), the attention is
    no softmax (sigmoid, linear); masks behind the softmax are another rule's.

Where it points
    The operation behind the softmax.

References
    Vaswani et al. 2017, section 3.2.1; Miller 2023, "Attention Is Off By One".
"""

from __future__ import annotations

from math import isclose, sqrt

from encdoctor.evidence.scores import AttentionWeights, Scores, WeightRows
from encdoctor.model import Limit, NotApplicable, Passed, Place, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("NUM014", "attention-rows-not-normalised", Severity.ERROR)
ONE = Limit(
    0.01,
    "distance of the weights' sum over the keys from 1",
    "a softmax sums to 1 exactly; eps in the denominator and half precision stay within 1e-3",
)
ONCE = Limit(1.0, "softmaxes one after the other", "a second one sees inputs in [0, 1]: weights differ by e at most")


def check(weights: AttentionWeights, scores: Scores) -> Verdict:
    if not weights.sites:
        return NotApplicable("no softmax over q·k was recognised")
    twice = [rows for rows in weights.sites if rows.twice is not None and not rows.gated]
    if twice:
        return _double(twice)
    late = _scaled_too_late(scores)
    off = [rows for rows in weights.sites if _is_off(rows) and rows.place not in late]
    return _altered(off) if off else Passed(max(abs(rows.worst - 1) for rows in weights.sites))


def _is_off(rows: WeightRows) -> bool:
    return abs(rows.worst - 1) > ONE.value and rows.altered is not None and not rows.gated


def _scaled_too_late(scores: Scores) -> set[Place]:
    """Softmaxes whose scores lack the 1/√head_dim that stands behind them: scores-not-scaled says so."""
    sites = [site for site in scores.sites if not site.scaled]
    return {site.place for site in sites if isclose(site.after * sqrt(site.head_dim), 1.0, rel_tol=ONE.value)}


def _double(twice: list[WeightRows]) -> Suspect:
    return Suspect(
        RULE,
        message="softmax is applied to weights that a softmax has made",
        cause="the second softmax flattens attention: its inputs lie between 0 and 1",
        measured=2.0,
        limit=ONCE,
        where=tuple(dict.fromkeys(place for rows in twice for place in (rows.twice, rows.place) if place)),
        fix="leave the second softmax out",
    )


def _altered(off: list[WeightRows]) -> Suspect:
    worst = max(off, key=lambda rows: abs(rows.worst - 1))
    scaled = worst.factor != 1.0
    how = f"they are multiplied by {worst.factor:.3g} behind the softmax" if scaled else "they are changed behind it"
    return Suspect(
        RULE,
        message=f"attention weights sum to {worst.worst:.3g} in eval, not to 1",
        cause=how,
        measured=abs(worst.worst - 1),
        limit=ONE,
        where=tuple(dict.fromkeys(_places(off))),
        fix="scale the scores, not the weights" if scaled else "let nothing change the weights in eval mode",
        trials=(Trial("scale", tuple(rows.key for rows in off), 1 / worst.factor),) if scaled else (),
    )


def _places(off: list[WeightRows]) -> list[Place]:
    return [place for rows in off for place in (rows.altered, rows.place) if place is not None]
