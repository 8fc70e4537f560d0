"""Attention scores are not divided by √head_dim.

What it looks at
    The operations between the query and key projections and the softmax: their factors multiply to the score's scale,
    and the recorded tensors confirm it. Without any, scores of unit-variance q and k have a standard deviation of
    √head_dim.

Why it matters
    Scores that large saturate the softmax: each query looks at one key, whichever it is, and the softmax passes hardly
    any gradient back. The wider the head, the worse.

What you see
    A slow or unstable start, attention that is one-hot from the first step, queries and keys that barely train.

How to fix it
    Divide once, by the width of a head::

        scores = q @ k.transpose(-2, -1)                              # before
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])     # after

When it does not apply
    The scale is in the weights (T5 initialises q by head_dim^-½), q or k have constant length (QK-norm, cosine
    attention), a learned temperature scales, or the head is so narrow that nothing saturates.

Where it points
    The line that makes the scores.

References
    Vaswani et al. 2017, section 3.2.1; Raffel et al. 2020 (T5).
"""

from __future__ import annotations

from math import isclose, sqrt

from encdoctor.evidence.scores import Scores, ScoreSite
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("NUM004", "scores-not-scaled", Severity.WARNING)
LARGEST = Limit(
    2.0,
    "standard deviation of scores that unit-variance q and k give",
    "1/√head_dim makes it 1 (Vaswani et al. 2017); unscaled heads of 32 to 128 reach 6 to 11, where the normalised "
    "entropy of softmax over 128 keys falls from 0.90 to between 0.09 and 0.21",
)
# Factors that are meant to be 1 come out as 1 to rounding.
EXACT = 1e-3


def check(scores: Scores) -> Verdict:
    if not scores.sites:
        return NotApplicable("no softmax over q·k was recognised")
    unscaled = [site for site in scores.sites if _is_unscaled(site)]
    if not unscaled:
        return Passed(max((s.predicted for s in scores.sites), default=0.0))
    worst = max(unscaled, key=lambda site: site.predicted)
    return Suspect(
        RULE,
        message=f"scores are q·k as it stands, {worst.predicted:.2g} times too large for heads of {worst.head_dim}",
        cause=_cause(worst),
        measured=worst.predicted,
        limit=LARGEST,
        where=tuple(dict.fromkeys(site.scores_place for site in unscaled)),
        fix="divide the scores by sqrt(head_dim) before the softmax",
        trials=(Trial("scale", tuple(site.key for site in unscaled), 1 / sqrt(worst.head_dim)),),
    )


def _is_unscaled(site: ScoreSite) -> bool:
    bare = site.plain and isclose(site.scale or 0.0, 1.0, rel_tol=EXACT) and not site.scaled
    return bare and site.predicted > LARGEST.value


def _cause(site: ScoreSite) -> str:
    if isclose(site.after * sqrt(site.head_dim), 1.0, rel_tol=EXACT):
        return "the division by √head_dim stands behind the softmax, where it shrinks the weights instead of the scores"
    return "nothing between the projections and the softmax scales, nor do the weights of q and k make up for it"
