"""Dropout drops what it should keep.

What it looks at
    The rates at which operations drop in train mode, against the rates that modules, arguments and settings name.

Why it matters
    `p` is the probability of dropping in torch, of keeping in other libraries. Nine tenths dropped instead of one tenth
    leaves little to learn from.

What you see
    A training loss that hardly falls and an evaluation that is much better than training.

How to fix it
    Pass the probability of dropping::

        x = F.dropout(x, 1 - self.rate, self.training)     # before
        x = F.dropout(x, self.rate, self.training)         # after

When it does not apply
    At most half is dropped; a rate above one half is itself given.

Where it points
    The operation that drops.

References
    PyTorch, `torch.nn.Dropout`; TensorFlow 1, `tf.nn.dropout(keep_prob)`.
"""

from __future__ import annotations

from encdoctor.evidence.modes import Draw, TrainMode
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("MOD011", "dropout-rate-mismatch", Severity.WARNING)
HALF = Limit(0.5, "share that is dropped", "published encoders drop at most half; more is what was to be kept")
ROUNDING = 1e-6


def check(train: TrainMode) -> Verdict:
    rated = [draw for draw in train.draws if draw.rate is not None]
    if not rated:
        return NotApplicable("nothing is dropped in train mode")
    given = {d.rate for d in train.dropouts} | {rate for _, rate in train.declared}
    wrong = [draw for draw in rated if _rate(draw) > HALF.value + ROUNDING and not _is_given(_rate(draw), given)]
    if not wrong:
        return Passed(max(map(_rate, rated)))
    worst = max(wrong, key=_rate)
    turned = any(abs(1 - _rate(worst) - rate) < ROUNDING for rate in given)
    return Suspect(
        RULE,
        message=f"{_rate(worst):.0%} is dropped in training",
        cause="the rate that is given is taken for the share to keep" if turned else "more than half is dropped",
        measured=_rate(worst),
        limit=HALF,
        where=tuple(dict.fromkeys(draw.place for draw in wrong)),
        fix="pass the probability of dropping, not of keeping",
    )


def _is_given(rate: float, given: set[float]) -> bool:
    return any(abs(rate - known) < ROUNDING for known in given)


def _rate(draw: Draw) -> float:
    return draw.rate or 0.0
