"""Forward changes settings of the whole process.

What it looks at
    Global switches before and after a forward, and whether the generators of torch, NumPy and Python stand at the same
    place after it though they started from different seeds.

Why it matters
    Everything else in the process is affected: a forward that seeds makes every later dropout mask and shuffle the
    same, one that switches gradients off ends training silently.

What you see
    The same dropout mask in every step; a loss without gradient; another library that suddenly computes in float64.

How to fix it
    Use a generator of your own, or a context manager::

        torch.manual_seed(0); w = torch.randn(m, d)                      # before
        w = torch.randn(m, d, generator=torch.Generator().manual_seed(0))   # after

When it does not apply
    The setting is put back before forward returns.

Where it points
    The call that makes the setting, or the class.

References
    PyTorch, Reproducibility; `torch.random.fork_rng`.
"""

from __future__ import annotations

from encdoctor.evidence.modes import Repeats
from encdoctor.model import Limit, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("MOD004", "global-state-mutated", Severity.ERROR)
UNTOUCHED = Limit(0.0, "global settings that a forward changes", "the process belongs to others as well")


def check(repeats: Repeats) -> Verdict:
    changed = [*repeats.switches, *(f"the seed of {name}" for name in repeats.reseeds)]
    if not changed:
        return Passed()
    return Suspect(
        RULE,
        message=f"forward changes {', '.join(changed)}",
        cause="a global setting is made inside forward and not put back",
        measured=float(len(changed)),
        limit=UNTOUCHED,
        where=(repeats.sets or repeats.root,),
        fix="use a generator, or a context manager that puts the setting back",
    )
