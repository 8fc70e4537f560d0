"""A layer takes no part: none of its parameters reaches any output.

What it looks at
    From every output of a forward the recorded operations are followed back to the parameters. A layer none of whose
    parameters is met does nothing: it is run and its result is lost, or others of its list are run and it is not.

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

When it does not apply
    Poolers, heads, templates and projections that no operation reads: unused-parameters tells of them. Attention whose
    result every layer drops: that is no-token-mixing. In installed packages it is a note.

Where it points
    The lines that read the list of layers, the last one first, and the one that registers the module.

References
    PyTorch, `torch.nn.parallel.DistributedDataParallel`, `find_unused_parameters`.
"""

from __future__ import annotations

from encdoctor.evidence.blocks import Blocks
from encdoctor.evidence.layers import Layers, Unused
from encdoctor.evidence.outputs import OutputFacts
from encdoctor.intent import Intent
from encdoctor.model import Limit, NotApplicable, Passed, Place, Rule, Severity, Suspect, Verdict

RULE = Rule("BLK016", "layer-unused", Severity.WARNING)
LIMIT = Limit(0.0, "parameters that reach no output", "a parameter that reaches no output can get no gradient")


def check(layers: Layers, intent: Intent, blocks: Blocks | None, outputs: OutputFacts | None) -> Verdict:
    if outputs is not None and outputs.depends == 0:
        return NotApplicable("the output does not depend on the input: constant-output says where")
    unused = [u for u in layers.unused if (u.ran and u.composite) or u.siblings]
    unused = [u for u in unused if not _is_dropped_attention(u, blocks)]
    if not unused:
        return Passed()
    first, others = unused[0], f" and {len(unused) - 1} more" if len(unused) > 1 else ""
    return Suspect(
        RULE,
        message=f"{first.module}{others} takes no part in any output",
        cause="it is run, but what it returns is not used" if first.ran else "others of its list are run, it never is",
        measured=float(sum(u.parameters for u in unused)),
        limit=LIMIT,
        where=tuple(dict.fromkeys(_places(unused))),
        fix="run each layer on what the one before it returned",
        severity=Severity.NOTE if intent.installed else None,
    )


def _is_dropped_attention(unused: Unused, blocks: Blocks | None) -> bool:
    """Attention of layers that go on without it, everywhere: no-token-mixing says so."""
    if blocks is None or len(blocks.dead) < blocks.sites:
        return False
    return any(
        site.layer and site.module.startswith(unused.module) and unused.module.startswith(f"{site.layer}.")
        for site in blocks.dead
    )


def _places(unused: list[Unused]) -> list[Place]:
    lines = [line for u in unused for line in u.lines if u.siblings]
    return lines[::-1] + [u.place for u in unused]
