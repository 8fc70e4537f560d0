"""A part that was drawn at random is never trained.

What it looks at
    Parameters with `requires_grad=False` that move the output, and whether another seed builds other values: a table of
    sines is the same each time, a random projection is not.

Why it matters
    Random numbers stay random: the part scrambles its input for ever, and everything behind it has to live with it.

What you see
    The loss stops at a floor; some weights never change.

How to fix it
    Leave the gradient on, or say what is meant (an argument such as `freeze_embeddings`, a docstring, `--intent
    frozen`) and load trained weights into the part::

        self.patch.requires_grad_(False)     # only for weights that were trained elsewhere

When it does not apply
    Fixed tables (sinusoids); parts whose freezing is declared; parts that do not move the output.

Where it points
    The line on which the gradient is switched off.

References
    PyTorch, Autograd mechanics: setting `requires_grad`.
"""

from __future__ import annotations

from encdoctor.evidence.gradients import MOVES
from encdoctor.evidence.parts import Parts
from encdoctor.intent import Intent, What
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("PRM002", "frozen-parameters", Severity.WARNING)
NONE = Limit(0, "random parameters that are not trained", "random numbers carry nothing that was learned")


def check(parts: Parts, intent: Intent) -> Verdict:
    declared = intent.of(What.FROZEN)
    if declared is not None and declared.value:
        return NotApplicable(f"declared frozen: {declared.source}")
    frozen = [part for part in parts.frozen if part.moves > MOVES and part.random is not False]
    if not frozen:
        return Passed()
    return [
        Suspect(
            RULE,
            message=f"`{part.name}` ({part.parameters:,} parameters) is not trained",
            cause="its values are drawn at random, and its gradient is switched off"
            if part.random
            else "its gradient is switched off; whether its values were trained cannot be seen",
            measured=float(part.parameters),
            limit=NONE,
            where=part.places,
            fix="leave requires_grad on, or declare it: --intent frozen",
            severity=Severity.NOTE if part.random is None or intent.installed else None,
            about=part.name,
        )
        for part in frozen
    ]
