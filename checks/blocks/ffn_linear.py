"""The feed-forward has no non-linearity: its two maps are one.

What it looks at
    The operations between the linear maps of each feed-forward. Where nothing but sums, scalings and rearrangements
    stands there, and nowhere else in the sublayer either, its two maps equal a single one.

Why it matters
    Two linear maps in a row have the capacity of one of them, at the cost of both. What is left in the encoder that is
    not linear is the softmax and the norms.

What you see
    A model that learns slower and less than its number of parameters promises. Nothing crashes.

How to fix it
    Put an activation between the maps::

        return self.down(self.up(x))                 # before
        return self.down(F.gelu(self.up(x)))         # after

    `activation=nn.Identity()` given to `nn.TransformerEncoderLayer` does the same harm.

When it does not apply
    Gated units (the gate is the non-linearity); pairs that narrow on purpose (low rank, adapters); attention's own
    projections.

Where it points
    The line that calls the first of the two maps.

References
    Vaswani et al. 2017, section 3.3; Dong et al. 2021.
"""

from __future__ import annotations

from encdoctor.evidence.blocks import Blocks, Kind, LinearPair, Sublayer
from encdoctor.intent import Intent
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("BLK006", "ffn-linear", Severity.WARNING)
LIMIT = Limit(
    0.0,
    "feed-forwards without a non-linearity",
    "W2(W1 x + b1) + b2 is itself one affine map; a middle narrower than the outside would be a choice of rank",
)


def check(blocks: Blocks, intent: Intent) -> Verdict:
    if not blocks.understood:
        return NotApplicable(f"the stream was not recognised: {blocks.why}")
    pairs = [pair for s in blocks.sublayers if _is_flat(s) for pair in s.pairs if _widens(s, pair)]
    if not pairs:
        return Passed()
    return Suspect(
        RULE,
        message="no non-linearity between the two maps of the feed-forward",
        cause=f"the result of the first map of {pairs[0].module or 'the feed-forward'} goes straight into the second",
        measured=float(len(pairs)),
        limit=LIMIT,
        where=tuple(dict.fromkeys(pair.place for pair in pairs)),
        fix="put an activation (GELU, ReLU, a gate) between the two maps",
        severity=Severity.NOTE if intent.installed else None,
    )


def _is_flat(sublayer: Sublayer) -> bool:
    """Beside attention in a parallel block, only the pair itself can be judged."""
    return sublayer.kind is Kind.ATTENTION or sublayer.activations == 0


def _widens(sublayer: Sublayer, pair: LinearPair) -> bool:
    return pair.widening > 1 if sublayer.kind is Kind.ATTENTION else pair.widening >= 1
