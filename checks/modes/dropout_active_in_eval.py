"""Dropout goes on in eval mode.

What it looks at
    The same call twice in eval mode, under two random seeds. Where the results differ, the recorded run shows which
    operations drew, and whether what they drew decides what is kept: dropout, drop path, a hand-written mask.

Why it matters
    Every evaluation and every deployed answer is computed by a randomly thinned network.

What you see
    Two calls with the same input differ; validation scores that jitter and lie below what training promises.

How to fix it
    Tell functional dropout which mode the module is in, or use the module::

        x = F.dropout(x, self.rate)                             # before: training=True is the default
        x = F.dropout(x, self.rate, training=self.training)     # after

    `F.scaled_dot_product_attention` always applies `dropout_p`: pass `self.rate if self.training else 0.0`.

When it does not apply
    Monte Carlo dropout that is declared; dropout inside modules that are not registered, which `.eval()` does not reach
    (layers-unregistered says so).

Where it points
    The operation that draws.

References
    Srivastava et al. 2014; PyTorch, `torch.nn.functional.scaled_dot_product_attention`, note on `dropout_p`.
"""

from __future__ import annotations

from encdoctor.evidence.modes import Repeats
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("MOD001", "dropout-active-in-eval", Severity.ERROR)
SAME = Limit(
    1e-6,
    "relative change between two seeds in eval mode",
    "the same kernels on the same numbers give the same bits; 1e-6 leaves room for threads that add in another order",
)


def check(repeats: Repeats) -> Verdict:
    thinning = [draw for draw in repeats.draws if draw.thins]
    if repeats.chance <= SAME.value or not thinning:
        return Passed(repeats.chance)
    if repeats.deliberate:
        return NotApplicable(f"chance in eval mode is declared: {repeats.deliberate}")
    registered = [draw for draw in thinning if draw.registered]
    if not registered:
        return Passed(repeats.chance, "only modules that are not registered still train: layers-unregistered says so")
    names = ", ".join(dict.fromkeys(draw.operation for draw in registered))
    return Suspect(
        RULE,
        message=f"two calls in eval mode differ by {repeats.chance:.2g}: dropout is active",
        cause=f"{names} draws in eval mode as it does in training",
        measured=repeats.chance,
        limit=SAME,
        where=tuple(dict.fromkeys(draw.place for draw in registered)),
        fix="let it depend on self.training",
        trials=(Trial("without_chance", tuple(draw.key for draw in registered)),),
    )
