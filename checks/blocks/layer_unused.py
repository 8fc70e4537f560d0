"""A registered module takes no part: none of its parameters reaches any output.

What it looks at
    From every output of a forward the recorded operations are followed back to the parameters. A module none of whose
    parameters is met does nothing, whether it is never run or run and its result is lost. The source then tells a
    layer that is read nowhere from a head that was not asked for.

Why it matters
    The encoder is shallower than it looks. Its parameters are stored, moved and decayed for nothing, and distributed
    training stops with an error about parameters without a gradient.

What you see
    Weights that never change; fewer effective layers than configured; DistributedDataParallel's complaint about unused
    parameters.

How to fix it
    Run every layer, on what the one before it returned::

        for layer in self.layers:
            x = self.layers[0](x)      # before: or layer(embedded)
            x = layer(x)               # after

    A template that is only there to be copied should stay a local variable.

When it does not apply
    Poolers, heads and decoders that the source reads on another branch are a note. Single maps (a projection that no
    one reads) are told by unused-parameters.

Where it points
    The line that runs the layers, or else the one that registers the module.

References
    PyTorch, `torch.nn.parallel.DistributedDataParallel`, `find_unused_parameters`.
"""

from __future__ import annotations

from encdoctor.evidence.blocks import Blocks
from encdoctor.evidence.layers import Layers, Unused
from encdoctor.intent import Intent
from encdoctor.model import Limit, Passed, Place, Rule, Severity, Suspect, Verdict

RULE = Rule("BLK016", "layer-unused", Severity.WARNING)
LIMIT = Limit(0.0, "parameters that reach no output", "a parameter that reaches no output can get no gradient")


def check(layers: Layers, intent: Intent, blocks: Blocks | None) -> Verdict:
    unused = [u for u in layers.unused if u.composite and not _is_dropped_attention(u, blocks)]
    if not unused:
        return Passed()
    meant = [u for u in unused if not _is_fault(u)]
    faults = [u for u in unused if _is_fault(u)]
    suspects = [_suspect(faults, Severity.NOTE if intent.installed else None)] if faults else []
    return suspects + ([_suspect(meant, Severity.NOTE)] if meant else [])


def _is_fault(unused: Unused) -> bool:
    """Lost though it ran, left out of a list whose others take part, or read nowhere."""
    return unused.ran or unused.siblings or not unused.read


def _is_dropped_attention(unused: Unused, blocks: Blocks | None) -> bool:
    """Attention of layers that go on without it, everywhere: no-token-mixing says so."""
    if blocks is None or len(blocks.dead) < blocks.sites:
        return False
    return any(
        site.layer and site.module.startswith(unused.module) and unused.module.startswith(f"{site.layer}.")
        for site in blocks.dead
    )


def _suspect(unused: list[Unused], severity: Severity | None) -> Suspect:
    first = unused[0]
    count = sum(u.parameters for u in unused)
    others = f" and {len(unused) - 1} more" if len(unused) > 1 else ""
    return Suspect(
        RULE,
        message=f"{first.module}{others} takes no part in any output",
        cause=_cause(first),
        measured=float(count),
        limit=LIMIT,
        where=tuple(dict.fromkeys(_places(unused))),
        fix="run the layer on the previous one's result" if first.siblings else "use the module, or remove it",
        severity=severity,
        about="meant" if severity is Severity.NOTE else "lost",
    )


def _cause(unused: Unused) -> str:
    if unused.ran:
        return "it is run, but what it returns is not used"
    if unused.siblings:
        return "others of the same list are run, this one never is"
    return "it is read on a branch that this call did not take" if unused.read else "no method but the constructor reads it"


def _places(unused: list[Unused]) -> list[Place]:
    lines = [line for u in unused for line in u.lines if u.siblings]
    return lines[::-1] + [u.place for u in unused]
