"""A registered part is never read.

What it looks at
    Which parameters some operation reads, in eval and in train mode, with a mask and without; and whether a method names
    the attribute at all.

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
    A pooler or head on a branch that this call does not take is a note; so is everything in an installed package. Layers
    of a stack have a rule of their own.

Where it points
    The assignment of the part.

References
    PyTorch, DistributedDataParallel, `find_unused_parameters`.
"""

from __future__ import annotations

from encdoctor.evidence.parts import Parts
from encdoctor.intent import Intent
from encdoctor.model import Limit, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("PRM003", "unused-parameters", Severity.WARNING)
NONE = Limit(0, "parameters that no operation reads", "what is never read cannot learn")


def check(parts: Parts, intent: Intent) -> Verdict:
    unused = [part for part in parts.unused if not part.layer]
    if not unused:
        return Passed()
    return [
        Suspect(
            RULE,
            message=f"`{part.name}` ({part.parameters:,} parameters) is never used",
            cause="a method names it, but no operation of these calls reads it"
            if part.mentioned
            else "no operation reads it, and no method but __init__ names it",
            measured=float(part.parameters),
            limit=NONE,
            where=(part.place,),
            fix="call it, or take it out; DDP needs find_unused_parameters=True until then",
            severity=Severity.NOTE if part.mentioned or intent.installed else None,
            about=part.name,
        )
        for part in unused
    ]
