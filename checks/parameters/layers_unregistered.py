"""Layers in a plain list or dict are invisible to the optimiser.

What it looks at
    Which modules run, seen by hooks, and which of them are in `named_modules()`.

Why it matters
    `parameters()`, `to()`, `state_dict()`, `train()` and `eval()` walk registered modules only. The others are never
    trained, never saved, and stay on the CPU in train mode.

What you see
    The number of parameters does not change with the number of layers; "optimizer got an empty parameter list"; weights
    on the CPU and input on the GPU; worse results after save and load.

How to fix it
    Register them::

        self.layers = nn.ModuleList([Layer(…) for _ in range(n)])     # not a plain list
        self.heads = nn.ModuleDict({…})                                # not a plain dict

When it does not apply
    Everything that runs is registered, or what is not has no parameters. What each forward makes anew is for
    parameter-created-in-forward.

Where it points
    The assignment of the list.

References
    PyTorch, `torch.nn.ModuleList`.
"""

from __future__ import annotations

from encdoctor.evidence.modules import ModuleTree, Unregistered
from encdoctor.model import Limit, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("PRM001", "layers-unregistered", Severity.ERROR)
NONE = Limit(0, "parameters that run but are not registered", "an optimiser is given registered parameters only")


def check(modules: ModuleTree) -> Verdict:
    hidden = [m for m in modules.unregistered if m.parameters and not m.created]
    if not hidden:
        return Passed()
    # the same line in N equal layers is one fault
    groups: dict[tuple[str, str, int], list[Unregistered]] = {}
    for module in hidden:
        groups.setdefault((module.held_in, module.place.file, module.place.line), []).append(module)
    return [_suspect(group) for group in groups.values()]


def _suspect(group: list[Unregistered]) -> Suspect:
    count = sum(m.parameters for m in group)
    first = group[0]
    owner, attribute = first.owner, first.held_in
    held = f"`self.{attribute}`, a plain {first.container}," if attribute else "no registered attribute"
    kind = "nn.ModuleDict" if first.container == "dict" else "nn.ModuleList"
    return Suspect(
        RULE,
        message=f"{len(group)} × {first.class_name} with {count:,} parameters run but are not registered",
        cause=f"they are held by {held} which nn.Module does not look into",
        measured=float(count),
        limit=NONE,
        where=tuple(dict.fromkeys(m.place for m in group)),
        fix=f"wrap them in {kind}" if attribute else "assign the module to an attribute of its owner in __init__",
        about=f"{owner}.{attribute}",
    )
