"""The gradient is cut on its way back.

What it looks at
    One backward from a random projection of the output. A parameter without gradient whose change nevertheless moves
    the output is cut off. Function calls tell on which lines a gradient came in and none came out; each such line is
    bypassed in turn to see whether the gradient arrives.

Why it matters
    Everything before the cut stays as it was initialised, while the rest trains around it.

What you see
    The loss stops at a floor; embeddings or lower layers never change; "parameters that were not used in producing
    loss" with DDP.

How to fix it
    Take the cut out of the way of the gradient: no `.detach()`, `.data`, `torch.no_grad()`, `.item()` or NumPy between
    parameters and loss; use `F.gumbel_softmax` or a straight-through estimator where something is rounded or chosen.

When it does not apply
    Parameters are frozen with `requires_grad_(False)`; parameters that do not move the output (an unused pooler, a gate
    that is 0 at the start).

Where it points
    The line of the cut.

References
    PyTorch, Autograd mechanics.
"""

from __future__ import annotations

from encdoctor.evidence.gradients import MOVES, Cut, Gradients, ParameterGradient
from encdoctor.model import Limit, Passed, Rule, Severity, Suspect, Trial, Undecided, Verdict

RULE = Rule("GRD004", "gradient-blocked", Severity.ERROR)
NONE = Limit(0, "parameters without gradient that move the output", f"moving it by more than {MOVES:g} is no round-off")


def check(gradients: Gradients) -> Verdict:
    blocked = gradients.blocked()
    if not blocked:
        return Passed()
    if not gradients.cuts:
        return Undecided(
            f"{len(blocked)} parameters move the output but get no gradient, and no cut was seen: {_names(blocked)}",
            "look for custom autograd functions and conversions to NumPy between them and the output",
        )
    cuts = sorted(gradients.cuts, key=lambda cut: not cut.place.own)
    return Suspect(
        RULE,
        message=f"no gradient reaches {_names(blocked)}",
        cause=_cause(cuts),
        measured=float(len(blocked)),
        limit=NONE,
        where=tuple(cut.place for cut in cuts),
        fix=f"take {cuts[0].kind} out of the way of the gradient",
        trials=(*(Trial("bypass", (cut.key,)) for cut in cuts), Trial("bypass", tuple(cut.key for cut in cuts))),
    )


def _cause(cuts: list[Cut]) -> str:
    kinds = ", ".join(dict.fromkeys(cut.kind for cut in cuts))
    return f"a gradient comes in and none comes out: {kinds}"


def _names(blocked: tuple[ParameterGradient, ...]) -> str:
    names = [p.name for p in blocked]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
