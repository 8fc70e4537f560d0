"""Order plays no role: no position reaches the encoder.

What it looks at
    The tokens of a batch without padding are permuted. Without positions an encoder's outputs are permuted exactly the
    same way, up to round-off; with positions of any kind they are not.

Why it matters
    Attention and feed-forward layers treat tokens as a set. "dog bites man" and "man bites dog" get the same vectors.

What you see
    Quality like that of a bag of words; tasks that need order are not learned.

How to fix it
    Add positions where tokens become vectors, or rotate q and k::

        x = self.tokens(ids)                                               # before
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))  # after

When it does not apply
    Sets are meant, and said so (`--intent no-positions`, a docstring); outputs do not correspond to positions.
    Where the encoder takes vectors, the caller may have added positions: a note.

Where it points
    Where tokens become vectors.

References
    Vaswani et al. 2017, section 3.5; Lee et al. 2019, Set Transformer.
"""

from __future__ import annotations

from encdoctor.contract import CallContract, InputKind
from encdoctor.evidence.outputs import OutputFacts
from encdoctor.evidence.positions import Order
from encdoctor.intent import Intent, What
from encdoctor.limits import ORDER_MATTERS
from encdoctor.model import NotApplicable, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("POS001", "position-missing", Severity.WARNING)


def check(contract: CallContract, order: Order, intent: Intent, outputs: OutputFacts | None) -> Verdict:
    if outputs is not None and outputs.depends == 0:
        return NotApplicable("the output does not depend on the input: constant-output says where")
    if not order.measured:
        return NotApplicable(order.why)
    if intent.says(What.NO_POSITIONS):
        declared = intent.of(What.NO_POSITIONS)
        return NotApplicable(f"no positions are meant: {declared.source if declared else ''}")
    if order.permuted > order.noise or order.rows > order.noise:
        return Passed(order.permuted)
    vectors = contract.input is InputKind.EMBEDDINGS or not order.projected
    return Suspect(
        RULE,
        message="order plays no role: permuted tokens give permuted outputs",
        cause="no position is added, rotated or biased in"
        + ("; the encoder takes vectors, to which the caller may have added positions" if vectors else ""),
        measured=order.permuted,
        limit=ORDER_MATTERS,
        where=(order.first,) if order.first.line else (),
        fix="add position vectors where tokens become vectors, or use rotary or relative positions",
        trials=(Trial("add_positions", (order.key,)),) if order.key else (),
        severity=Severity.NOTE if vectors or intent.installed else None,
    )
