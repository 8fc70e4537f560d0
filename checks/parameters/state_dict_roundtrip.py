"""Saved weights do not make the same model.

What it looks at
    The state dict of the model after it has run, loaded into a new instance that was built with another seed: do the
    names fit, and are outputs the same in eval mode?

Why it matters
    What is not in the state dict is lost with the process: the loaded model is another one.

What you see
    "Missing key(s) in state_dict"; a checkpoint that is worse than the run that wrote it.

How to fix it
    Save what is random, and register what the constructor cannot know::

        self.register_buffer("projection", torch.randn(d, d))      # not self.projection = torch.randn(d, d)
        self.register_buffer("table", table, persistent=False)     # only for what is the same in every instance

    Make parameters in `__init__`, not in forward.

When it does not apply
    An instance is given, of which no second can be built. Layers that are not registered have a rule of their own,
    and so have parameters that forward makes.

Where it points
    Where the first tensor that is not saved, or the first name that does not fit, is set.

References
    PyTorch, Saving and Loading Models; `register_buffer(persistent=…)`.
"""

from __future__ import annotations

from encdoctor.evidence.modules import ModuleTree
from encdoctor.evidence.roundtrip import RoundTrip
from encdoctor.intent import Intent
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("PRM005", "state-dict-roundtrip", Severity.ERROR)
SAME = Limit(
    1e-4,
    "relative change of outputs after saving and loading",
    "equal weights run the same kernels; threads may add in another order, which moves float32 by 1e-6",
)
FITS = Limit(0, "names that do not fit", "load_state_dict is strict by default")


def check(trip: RoundTrip, modules: ModuleTree, intent: Intent) -> Verdict:
    if not trip.measured:
        return NotApplicable(trip.why)
    if any(m.parameters for m in modules.unregistered):
        return NotApplicable("layers that are not registered are not saved: layers-unregistered says which")
    if any(late.name for late in modules.late):
        return NotApplicable("forward makes parameters: parameter-created-in-forward says which")
    if trip.refused or trip.raised:
        return _refused(trip, modules, intent)
    if trip.change <= SAME.value:
        return Passed(trip.change)
    if not trip.unsaved:
        return NotApplicable("the same weights give other outputs, and nothing unsaved differs: chance, not loading")
    names, attribute = ", ".join(trip.unsaved[:3]), trip.unsaved[0].rpartition(".")[2]
    return Suspect(
        RULE,
        message=f"a new instance with the saved weights gives other outputs: {names} not saved",
        cause="another seed builds other values, and the state dict does not hold them",
        measured=trip.change,
        limit=SAME,
        where=trip.places,
        fix=f"self.register_buffer({attribute!r}, …), persistent, or draw it from a fixed seed",
        severity=Severity.NOTE if intent.installed else None,
    )


def _refused(trip: RoundTrip, modules: ModuleTree, intent: Intent) -> Suspect:
    kinds = {"missing": trip.missing, "unexpected": trip.unexpected, "of another shape": trip.reshaped}
    told = [f"{kind}: {', '.join(names[:2])}" for kind, names in kinds.items() if names] or [trip.raised]
    return Suspect(
        RULE,
        message=f"a new instance does not load the saved weights: {'; '.join(told)}",
        cause="the state dict depends on what ran, or on the instance, and not on the constructor alone",
        measured=float(len(trip.refused) or 1),
        limit=FITS,
        where=trip.places or (modules.root,),
        fix="make every parameter and buffer in __init__, of a size that the arguments give",
        severity=Severity.NOTE if intent.installed else None,
    )
