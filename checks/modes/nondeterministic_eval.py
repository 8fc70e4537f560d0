"""The same call gives another result each time.

What it looks at
    The same call twice in eval mode, under two random seeds of torch, NumPy and Python. What draws dropout masks is
    dropout-active-in-eval's; here it is noise, random features, random orders, or a draw that the trace cannot see.

Why it matters
    Results cannot be repeated, cached or compared, and evaluation measures luck.

What you see
    Embeddings of one text that differ between two calls; tests that fail now and then.

How to fix it
    Draw once in the constructor and keep it as a buffer, or only while training::

        x = x + 0.1 * torch.randn_like(x)                    # before
        if self.training:
            x = x + 0.1 * torch.randn_like(x)                # after

When it does not apply
    Sampling that is declared: an argument such as `noise` or `generator`, or the documentation.

Where it points
    The operation that draws, or the class where none was recorded.

References
    PyTorch, Reproducibility; Choromanski et al. 2021 (fixed random features).
"""

from __future__ import annotations

from encdoctor.evidence.modes import Repeats
from encdoctor.intent import Intent
from encdoctor.model import Limit, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("MOD002", "nondeterministic-eval", Severity.WARNING)
SAME = Limit(
    1e-6,
    "relative change between two seeds in eval mode",
    "the same kernels on the same numbers give the same bits; 1e-6 leaves room for threads that add in another order",
)


def check(intent: Intent, repeats: Repeats) -> Verdict:
    if repeats.chance <= SAME.value:
        return Passed(repeats.chance)
    draws = [draw for draw in repeats.draws if not draw.thins]
    if not draws and repeats.draws:
        return Passed(repeats.chance, "dropout draws: dropout-active-in-eval says so")
    names = ", ".join(dict.fromkeys(draw.operation for draw in draws)) or "something outside the recorded operations"
    declared = f"; declared: {repeats.deliberate}" if repeats.deliberate else ""
    return Suspect(
        RULE,
        message=f"two calls in eval mode differ by {repeats.chance:.2g}",
        cause=f"{names} draws anew at every call{declared}",
        measured=repeats.chance,
        limit=SAME,
        where=tuple(dict.fromkeys(draw.place for draw in draws)) or (repeats.root,),
        fix="draw once in the constructor (a buffer), or only while self.training",
        trials=(Trial("without_chance", tuple(draw.key for draw in draws)),) if draws else (),
        severity=Severity.NOTE if repeats.deliberate or intent.installed else None,
    )
