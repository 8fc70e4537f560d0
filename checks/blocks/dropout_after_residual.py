"""Dropout acts on the sum of stream and branch instead of on the branch.

What it looks at
    In train mode, which operations act on the stream as a whole between two sublayers. Dropout belongs on what a
    sublayer adds; on the sum it also drops what earlier layers wrote.

Why it matters
    With rate p and N such places, an entry of the stream survives with probability (1 − p)^N: the identity path that
    a residual promises is cut at random, layer by layer.

What you see
    Training that is noisier with depth and wants a smaller dropout rate than the literature's 0.1.

How to fix it
    Move it to the branch::

        x = self.norm(self.dropout(x + self.feed(x)))      # before
        x = self.norm(x + self.dropout(self.feed(x)))      # after

When it does not apply
    Dropout on the embeddings, on the output for the head, on attention weights; stochastic depth, which drops a whole
    branch.

Where it points
    The line that calls the dropout.

References
    Vaswani et al. 2017, section 5.4: dropout to the output of each sub-layer, before it is added.
"""

from __future__ import annotations

from encdoctor.evidence.blocks import Blocks
from encdoctor.intent import Intent
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("BLK002", "dropout-after-residual", Severity.WARNING)
LIMIT = Limit(
    0.0,
    "dropouts on the stream between sublayers",
    "what survives N of them is (1 − p)^N of the stream; on the branch the stream is untouched",
)


def check(blocks: Blocks, intent: Intent) -> Verdict:
    if not blocks.understood:
        return NotApplicable(f"the stream was not recognised: {blocks.why}")
    if not blocks.dropouts:
        return Passed()
    return Suspect(
        RULE,
        message="dropout is applied to the residual sum",
        cause="the dropout's input is stream plus branch, so that entries of the stream itself are lost in every layer",
        measured=float(len(blocks.dropouts)),
        limit=LIMIT,
        where=tuple(dict.fromkeys(dropout.place for dropout in blocks.dropouts)),
        fix="apply dropout to the sublayer's result before it is added",
        severity=Severity.NOTE if intent.installed else None,
    )
