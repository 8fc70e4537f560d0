"""A parameter is made in forward.

What it looks at
    Parameters that are not there when the model is built, and are after a forward; modules and parameters that each
    forward makes anew.

Why it matters
    An optimiser that was made before the first forward never hears of them, a checkpoint cannot be loaded into a fresh
    model, and what is made anew in each forward is random for ever.

What you see
    "Unexpected key(s) in state_dict"; a part that never learns; outputs that change from call to call.

How to fix it
    Make them in `__init__`, or use PyTorch's lazy modules, which register at once and take their size later::

        self.out = nn.LazyLinear(width)          # not self.out = nn.Linear(x.shape[-1], width) in forward

When it does not apply
    Everything is there when the model is built. In installed packages it is a note.

Where it points
    The line that sets the parameter or calls the module.

References
    PyTorch, `torch.nn.modules.lazy`.
"""

from __future__ import annotations

from encdoctor.evidence.modules import ModuleTree
from encdoctor.intent import Intent
from encdoctor.model import Limit, Passed, Place, Rule, Severity, Suspect, Verdict

RULE = Rule("PRM006", "parameter-created-in-forward", Severity.WARNING)
NONE = Limit(0, "parameters that forward makes", "an optimiser is given what is there when the model is built")


def check(modules: ModuleTree, intent: Intent) -> Verdict:
    made: dict[tuple[str, int], list[tuple[str, int, Place]]] = {}
    for late in modules.late:
        made.setdefault((late.place.file, late.place.line), []).append((late.name, late.parameters, late.place))
    for module in modules.unregistered:
        if module.created and module.parameters:
            entry = (module.class_name, module.parameters, module.place)
            made.setdefault((module.place.file, module.place.line), []).append(entry)
    if not made:
        return Passed()
    return [_suspect(group, intent) for group in made.values()]


def _suspect(group: list[tuple[str, int, Place]], intent: Intent) -> Suspect:
    name, _, place = group[0]
    count = sum(parameters for _, parameters, _ in group)
    return Suspect(
        RULE,
        message=f"forward makes {f'`{name}`' if name else 'a parameter'} ({count:,} parameters)",
        cause="it is not there when the model is built, so that no optimiser and no checkpoint knows it",
        measured=float(count),
        limit=NONE,
        where=tuple(dict.fromkeys(where for _, _, where in group)) or (place,),
        fix="make it in __init__; nn.LazyLinear where the size is not known there",
        severity=Severity.NOTE if intent.installed else None,
        about=name,
    )
