"""All layers start with the same random weights.

What it looks at
    Whether the entries of a list of layers, though different objects, have equal random weights.

Why it matters
    Layers that start alike differ at first only by what they are given; part of their gradients stays alike. The
    initial scale of each was meant to be drawn, not copied.

What you see
    Slower learning at the start. The layers do part in training.

How to fix it
    Draw the weights after copying, or build each layer for itself::

        self.layers = nn.ModuleList(copy.deepcopy(layer) for _ in range(depth))      # before
        self.layers = nn.ModuleList(Layer(d_model) for _ in range(depth))            # after

    `nn.TransformerEncoder` copies its layer too: loop over its parameters and initialise them once more.

When it does not apply
    Weights that are zero or one by design. It is a note: torch's own encoder does so, and trains.

Where it points
    The line that makes the list.

References
    PyTorch, `torch.nn.TransformerEncoder`: "All layers in the TransformerEncoder are initialized with the same
    parameters."
"""

from __future__ import annotations

from encdoctor.evidence.layers import Layers
from encdoctor.model import Limit, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("BLK010", "layers-identical-init", Severity.NOTE)
LIMIT = Limit(1.0, "layers with the same random weights", "independent draws are equal with probability zero")


def check(layers: Layers) -> Verdict:
    lists = [alike for alike in layers.alike if not alike.same]
    if not lists:
        return Passed()
    return [
        Suspect(
            RULE,
            message=f"all {alike.count} entries of {alike.module} start with the same weights",
            cause=f"one {alike.class_name} was copied after its weights had been drawn",
            measured=float(alike.count),
            limit=LIMIT,
            where=(alike.place,),
            fix="initialise the layers again after copying, or build each one for itself",
            about=alike.module,
        )
        for alike in lists
    ]
