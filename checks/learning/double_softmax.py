"""The output is softmax already, and is meant for a loss that applies it again.

What it looks at
    Whether the rows of the output sum to 1, and what the documentation says the output is: logits, or something for a
    cross-entropy.

Why it matters
    `CrossEntropyLoss` applies log-softmax itself. Applied to probabilities, which lie between 0 and 1, its loss cannot
    fall below ln(1 + (C−1)/e), and its gradient is small everywhere.

What you see
    A loss that stops at a floor; accuracy that rises slowly though the data is easy.

How to fix it
    Return the logits::

        return self.classify(x[:, 0])                 # not .softmax(-1)

When it does not apply
    The documentation says probabilities. Where it says nothing, it is a note.

Where it points
    The softmax.

References
    PyTorch, torch.nn.CrossEntropyLoss: "the unnormalized logits for each class".
"""

from __future__ import annotations

from encdoctor.evidence.outputs import OutputFacts
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("FIT006", "double-softmax", Severity.WARNING)
LOGITS = Limit(0, "softmax between the last layer and the output", "the loss applies it")


def check(outputs: OutputFacts) -> Verdict:
    if not outputs.sums_to_one:
        return Passed()
    if outputs.meant_for == "probabilities":
        return NotApplicable(f"documented: {outputs.quote}")
    documented = outputs.meant_for == "logits"
    return Suspect(
        RULE,
        message="the output is probabilities" + (", and is documented for a loss on logits" if documented else ""),
        cause=f"documented: {outputs.quote}" if documented else "nothing says which loss it is for",
        measured=1.0,
        limit=LOGITS,
        where=(outputs.softmax_at,),
        fix="return the logits; apply softmax where probabilities are shown",
        severity=None if documented else Severity.NOTE,
    )
