"""A registered part reaches no output.

What it looks at
    Which parameters some output depends on, in eval and in train mode, with a mask and without; and whether a method
    that runs after building names the attribute at all.

Why it matters
    The part costs memory, is saved and loaded, and never learns. DistributedDataParallel waits for its gradient and
    stops.

What you see
    "Expected to have finished reduction in the prior iteration before starting a new one" under DDP; weights that never
    change; a parameter count that is too high.

How to fix it
    Call the part, or take it out. A template that `nn.TransformerEncoder` copies should not be kept as an attribute::

        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(…), depth)   # no self.layer = …

    Where it is meant for another branch, `find_unused_parameters=True` lets DDP live with it.

When it does not apply
    A pooler or head on a branch that this call does not take is a note; so is everything in an installed package.
    Layers of a stack, and layers that are run whole and lost, have a rule of their own.

Where it points
    The assignment of the part.

References
    PyTorch, DistributedDataParallel, `find_unused_parameters`.
"""

from __future__ import annotations

from encdoctor.evidence.outputs import OutputFacts
from encdoctor.evidence.parts import Parts, UnusedPart
from encdoctor.intent import Intent
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("PRM003", "unused-parameters", Severity.WARNING)
NONE = Limit(0, "parameters that reach no output", "what no output depends on gets no gradient")


def check(parts: Parts, intent: Intent, outputs: OutputFacts | None) -> Verdict:
    if outputs is not None and outputs.depends == 0:
        return NotApplicable("the output does not depend on the input: constant-output says where")
    if not parts.unused:
        return Passed()
    return [
        Suspect(
            RULE,
            message=f"`{part.name}` ({part.parameters:,} parameters) is never used",
            cause=_cause(part),
            measured=float(part.parameters),
            limit=NONE,
            where=part.places,
            fix="call it, or take it out; DDP needs find_unused_parameters=True until then",
            severity=Severity.NOTE if part.mentioned or intent.installed else None,
            about=part.name,
        )
        for part in parts.unused
    ]


def _cause(part: UnusedPart) -> str:
    if part.ran:
        return "it is run, and what it returns is not used"
    if part.mentioned:
        return "a method names it, but no operation of these calls reads it"
    return "no operation reads it, and no method that runs after building names it"
