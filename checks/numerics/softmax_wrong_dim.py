"""Softmax runs over another axis than the keys.

What it looks at
    At every attention site the weights are summed over the axis that the values are contracted over. Where that is
    not 1 though nothing stands between, the softmax ran over queries, heads or samples. A pooling softmax over an
    axis of length one, or over the batch, is found in the same way.

Why it matters
    A token's result is no longer an average of values: how much it reads depends on what other queries, heads or
    samples do. Over an axis of length one every weight is 1, and nothing can be learned.

What you see
    Outputs that grow with the length, attention rows that do not sum to 1, a pooling that never learns to choose.

How to fix it
    Normalise over the axis that the values are summed over::

        weights = scores.softmax(dim=1)      # before: (B, H, Q, K), over the heads
        weights = scores.softmax(dim=-1)     # after: over the keys

When it does not apply
    The softmax runs over the contracted axis, whichever that is (features and positions in linear attention, slots or
    experts that are summed over); something learned, or a second normalisation, stands between.

Where it points
    The softmax.

References
    Vaswani et al. 2017, section 3.2.1.
"""

from __future__ import annotations

from encdoctor.evidence.scores import AttentionWeights, PoolWeights, WeightRows
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("NUM006", "softmax-wrong-dim", Severity.ERROR)
ONE = Limit(
    0.01,
    "distance of the weights' sum over the keys from 1",
    "a softmax over the keys sums to 1 exactly; eps in the denominator and half precision stay within 1e-3",
)


def check(weights: AttentionWeights) -> Verdict:
    if not weights.sites and not weights.pools:
        return NotApplicable("no softmax over q·k, and no pooling softmax, was recognised")
    wrong = [rows for rows in weights.sites if _is_wrong(rows)]
    suspects = [_suspect(wrong)] if wrong else []
    suspects += [_pool(pool) for pool in weights.pools]
    return suspects or Passed(max((abs(r.worst - 1) for r in weights.sites), default=0.0))


def _is_wrong(rows: WeightRows) -> bool:
    return abs(rows.worst - 1) > ONE.value and not rows.gated and rows.altered is None


def _suspect(wrong: list[WeightRows]) -> Suspect:
    worst = max(wrong, key=lambda rows: abs(rows.worst - 1))
    return Suspect(
        RULE,
        message=f"the weights sum to {worst.worst:.3g} over the keys, not to 1",
        cause=f"softmax runs over the {worst.axis}, while the values are summed over the keys",
        measured=abs(worst.worst - 1),
        limit=ONE,
        where=tuple(dict.fromkeys(rows.place for rows in wrong)),
        fix="apply softmax to the axis of the keys (the last one of the scores)",
        trials=tuple(Trial("softmax_dim", tuple(rows.key for rows in wrong), axis) for axis in worst.other_axes),
    )


def _pool(pool: PoolWeights) -> Suspect:
    harm = "every weight is 1 whatever the scores" if pool.size == 1 else "samples share the weights"
    return Suspect(
        RULE,
        message=f"the pooling weights sum to {pool.total:.3g} over the positions, not to 1",
        cause=f"softmax runs over {pool.axis}, so {harm}",
        measured=abs(pool.total - 1),
        limit=ONE,
        where=(pool.place,),
        fix="apply softmax to the axis of the positions",
        trials=tuple(Trial("softmax_dim", (pool.key,), axis) for axis in pool.other_axes),
        about=pool.key,
    )
