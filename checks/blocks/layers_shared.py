"""One layer object stands in several places of the stack.

What it looks at
    Whether the entries of a list of layers are one and the same object, and whether one layer's attention stands
    several times in the stream.

Why it matters
    All places share one set of weights. The encoder has a fraction of the parameters that its depth promises, and each
    layer's gradient pulls at the same weights.

What you see
    The number of parameters does not grow with the number of layers; a model that is weaker than its depth.

How to fix it
    Build each layer for itself::

        layer = Layer(d_model)
        self.layers = nn.ModuleList([layer] * depth)                            # before
        self.layers = nn.ModuleList([Layer(d_model) for _ in range(depth)])     # after

When it does not apply
    Sharing that is declared (ALBERT, universal transformers). One layer that is called in a loop shares openly: a note.

Where it points
    The line that makes the list, or the line in the loop.

References
    Lan et al. 2020, ALBERT, section 3.1 (shared on purpose); Dehghani et al. 2019, Universal Transformers.
"""

from __future__ import annotations

from encdoctor.evidence.layers import Alike, Layers
from encdoctor.intent import Intent, What
from encdoctor.model import Limit, NotApplicable, Passed, Place, Rule, Severity, Suspect, Verdict

RULE = Rule("BLK009", "layers-shared", Severity.WARNING)
LIMIT = Limit(1.0, "places that hold one object", "n layers have n sets of weights unless sharing is meant")


def check(layers: Layers, intent: Intent) -> Verdict:
    declared = intent.of(What.SHARED)
    if declared is not None and declared.value is not False:
        return NotApplicable(f"sharing is declared: {declared.source}")
    lists = [alike for alike in layers.alike if alike.same]
    if lists:
        return [_listed(alike, intent) for alike in lists]
    return [_looped(*repeated) for repeated in layers.repeated] or Passed()


def _listed(alike: Alike, intent: Intent) -> Suspect:
    return Suspect(
        RULE,
        message=f"{alike.module} holds one {alike.class_name} {alike.count} times",
        cause="a list was multiplied, or one object was put in again: all its entries are the same layer",
        measured=float(alike.count),
        limit=LIMIT,
        where=(alike.place,),
        fix="build a new layer for each place, in a comprehension or with copy.deepcopy and new initial weights",
        severity=Severity.NOTE if intent.installed else None,
        about=alike.module,
    )


def _looped(layer: str, count: int, place: Place) -> Suspect:
    return Suspect(
        RULE,
        message=f"{layer} is run {count} times in a row",
        cause="one layer is called in a loop: its weights are shared by all steps",
        measured=float(count),
        limit=LIMIT,
        where=(place,),
        fix="build one layer for each step, or say in the docstring that the layer is shared",
        severity=Severity.NOTE,
        about=layer,
    )
