"""Forward makes a tensor on the CPU, wherever the model is.

What it looks at
    A forward on the meta device, which needs no GPU: every tensor that is made without the input's device stays behind,
    and torch refuses to mix the two.

Why it matters
    The encoder runs on the CPU and in every test there, and fails on the first GPU.

What you see
    "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu".

How to fix it
    Take the device from what the tensor meets::

        positions = torch.arange(x.shape[1])                          # before
        positions = torch.arange(x.shape[1], device=x.device)         # after

When it does not apply
    Plain attributes that do not move with the model (position-not-registered); a forward that looks at values, which
    cannot be run without any (`.item()`, `if mask.any()`).

Where it points
    Where the tensor is made, then where it meets the others.

References
    PyTorch, meta device; `torch.arange`, argument `device`.
"""

from __future__ import annotations

from encdoctor.evidence.devices import MetaRun
from encdoctor.evidence.modules import ModuleTree
from encdoctor.intent import Intent
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("MOD010", "device-hardcoded", Severity.WARNING)
NONE = Limit(0.0, "forwards on another device that raise", "a forward has to run where its parameters and inputs are")


def check(intent: Intent, run: MetaRun, modules: ModuleTree | None) -> Verdict:
    if not run.raised:
        return Passed()
    if modules is not None and any(module.parameters for module in modules.unregistered):
        return Passed(reason="unregistered modules stay behind; layers-unregistered says which")
    if not run.about_devices:
        return NotApplicable(f"the forward cannot be run without values: {run.raised}")
    if run.loose:
        return Passed(reason="a plain attribute stays behind; that is another rule's to say")
    return Suspect(
        RULE,
        message=f"on another device than the CPU forward raises {run.raised}",
        cause="a tensor is made in forward without the device of what it meets",
        measured=1.0,
        limit=NONE,
        where=tuple(dict.fromkeys((*run.made, *run.at))),
        fix="pass device=x.device where the tensor is made",
        severity=Severity.NOTE if intent.installed else None,
    )
