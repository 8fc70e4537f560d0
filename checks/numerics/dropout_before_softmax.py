"""Dropout acts on scores instead of weights.

What it looks at
    One recorded forward in train mode: whether a random mask multiplies the scores on their way to the softmax, and
    which weight padded keys get there.

Why it matters
    A dropped score becomes 0, which is a usual score, not "no attention". Where a mask stands before it, a masked key's
    −1e9 becomes 0 as well and the key is back; −inf · 0 is NaN.

What you see
    Padding matters in training only; NaN in training only; dropout that does not regularise.

How to fix it
    Drop weights, behind the softmax::

        weights = self.dropout(scores).softmax(-1)     # before
        weights = self.dropout(scores.softmax(-1))     # after

When it does not apply
    Keys are dropped by −inf (DropKey); nothing is dropped in train mode.

Where it points
    The dropout.

References
    Vaswani et al. 2017, section 5.4; Li et al. 2023 (DropKey).
"""

from __future__ import annotations

from encdoctor.evidence.modes import TrainMode
from encdoctor.model import Limit, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("NUM016", "dropout-before-softmax", Severity.ERROR)
NONE = Limit(0.0, "sites whose scores are dropped", "a score of 0 is an ordinary one; only a weight of 0 is none")


def check(train: TrainMode) -> Verdict:
    thinned = train.thinned_scores
    if not thinned:
        return Passed()
    leak = max(site.on_padding for site in thinned)
    revived = f"; padded keys are back with weights up to {leak:.2g}" if leak > 0 else ""
    return Suspect(
        RULE,
        message=f"in train mode {len(thinned)} sites drop scores before the softmax{revived}",
        cause="dropout stands before the softmax: what is dropped gets score 0 instead of weight 0",
        measured=float(len(thinned)),
        limit=NONE,
        where=tuple(dict.fromkeys(site.place for site in thinned)),
        fix="apply dropout to the weights, behind the softmax",
        trials=(Trial("without_chance", tuple(site.key for site in thinned)),),
        severity=None if leak > 0 else Severity.WARNING,
    )
