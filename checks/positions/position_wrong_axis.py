"""Positions are counted along the batch instead of along the sequence.

What it looks at
    A batch in which every row holds the same sentence. All rows must come out alike; where they do not, a row's
    number in the batch has become its position.

Why it matters
    Every token of a sentence gets the same position vector, that of the sentence's row: order plays no role, and the
    result depends on where in the batch a sentence stands.

What you see
    The same sentence gets different vectors in one batch; order is not learned.

How to fix it
    Index the table by the axis of the sequence::

        x = x + self.table[: x.size(0)]       # before, with a (N, 1, D) table and (B, S, D) input
        x = x + self.table[:, : x.size(1)]    # after, with a (1, N, D) table

    Or transpose to (S, B, D) first, if that is what the module expects.

When it does not apply
    The encoder is not the same on two equal calls.

Where it points
    Where rows of equal sentences first differ.

References
    PyTorch tutorial "Language Modeling with nn.Transformer", whose PositionalEncoding expects (S, B, D).
"""

from __future__ import annotations

from encdoctor.evidence.positions import Order
from encdoctor.limits import ROWS_ARE_EQUAL
from encdoctor.model import NotApplicable, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("POS002", "position-wrong-axis", Severity.ERROR)


def check(order: Order) -> Verdict:
    if not order.measured:
        return NotApplicable(order.why)
    if order.rows <= order.noise:
        return Passed(order.rows)
    alike = order.permuted <= order.noise
    return Suspect(
        RULE,
        message="the same sentence gets another vector in another row of the batch",
        cause="something is indexed by the sample"
        + (", and by nothing else: permuted tokens give permuted outputs" if alike else " instead of by the position"),
        measured=order.rows,
        limit=ROWS_ARE_EQUAL,
        where=order.differ,
        fix="index the positions by the sequence axis",
        trials=(Trial("positions_along_sequence", order.differ_keys),) if order.differ_keys else (),
    )
