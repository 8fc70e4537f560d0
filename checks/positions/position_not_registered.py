"""A table that the model uses but does not own.

What it looks at
    Tensors in plain attributes of modules that the forward reads. The model is then moved to the meta device, as
    `.to("cuda")` would move it: what is not a parameter or buffer stays behind.

Why it matters
    `.to()`, `.half()`, `state_dict()` and `deepcopy` know parameters and buffers only.

What you see
    "Expected all tensors to be on the same device" on the first GPU; half precision that silently widens; a table that
    is not saved.

How to fix it
    Register it::

        self.table = sinusoid(length, width)                                        # before
        self.register_buffer("table", sinusoid(length, width), persistent=False)    # after

When it does not apply
    The forward runs on the moved model: it moves the tensor itself, or makes it anew.

Where it points
    Where the attribute is set.

References
    PyTorch, `torch.nn.Module.register_buffer`.
"""

from __future__ import annotations

from encdoctor.evidence.devices import LooseTensors
from encdoctor.intent import Intent
from encdoctor.model import Limit, Passed, Rule, Severity, Suspect, Trial, Undecided, Verdict

RULE = Rule("POS004", "position-not-registered", Severity.WARNING)
NONE = Limit(
    0, "tensors in use that do not move with the model", "a module moves its parameters and buffers, nothing else"
)


def check(loose: LooseTensors, intent: Intent) -> Verdict:
    if not loose.tensors or not loose.raised:
        return Passed(0.0)
    names = ", ".join(dict.fromkeys(tensor.name for tensor in loose.tensors))
    if not loose.about_devices:
        return Undecided(f"{names} is no buffer, and the model cannot be tried elsewhere: {loose.raised}", "a GPU")
    named = tuple(tensor.name for tensor in loose.tensors)
    plain = not any(tensor.container for tensor in loose.tensors)
    return Suspect(
        RULE,
        message=f"{names} is a plain attribute: it does not move with the model",
        cause=f"moved to another device, forward raises {loose.raised}",
        measured=float(len(loose.tensors)),
        limit=NONE,
        where=tuple(dict.fromkeys(tensor.place for tensor in loose.tensors)),
        fix="register_buffer(name, tensor, persistent=False)",
        trials=(Trial("register_buffers", named),) if plain else (),
        severity=Severity.NOTE if intent.installed else None,
    )
