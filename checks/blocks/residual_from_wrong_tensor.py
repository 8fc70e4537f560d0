"""The residual adds another tensor than the sublayer's input.

What it looks at
    Which two tensors meet in each sum. Two mistakes are told apart: the sum of the second sublayer joins the layer's
    input, from before the first one (whose result then only passes through the second); or a layer overwrites its
    input with the normalised one and adds to that, so that a pre-norm layer has no unnormalised stream.

Why it matters
    What was skipped over has no way around the next sublayer: its result, and its gradient, go through it or are lost.
    With the stream normalised on the way, the advantage of pre-norm (gradients that reach every layer) is gone.

What you see
    A model that trains worse with depth though every layer seems to have a residual.

How to fix it
    Keep the raw input, and add to what came last::

        x = self.norm1(x)                     # before: overwritten
        x = x + self.attention(x)

        x = x + self.attention(self.norm1(x)) # after

When it does not apply
    Post-norm layers, which end with a norm; a long skip around several whole layers, each with its own residual.

Where it points
    The line of the sum.

References
    Xiong et al. 2020, figure 1: what is added in Post-LN and in Pre-LN.
"""

from __future__ import annotations

from encdoctor.evidence.blocks import Blocks, Sublayer
from encdoctor.intent import Intent
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("BLK019", "residual-from-wrong-tensor", Severity.ERROR)
LIMIT = Limit(
    0.0,
    "sums that join another tensor than the sublayer's input",
    "in Post-LN and Pre-LN alike the sublayer's own input, or what was normalised to make it, is added",
)


def check(blocks: Blocks, intent: Intent) -> Verdict:
    if not blocks.understood:
        return NotApplicable(f"the stream was not recognised: {blocks.why}")
    over = [s for s in blocks.sublayers if s.skips_over]
    if over:
        return _suspect(over, "the sum joins the tensor from before the previous sublayer", intent)
    # where attention is dropped there is no sublayer to judge by
    overwritten = [] if blocks.dead else _overwritten(blocks)
    if overwritten:
        return _suspect(overwritten, "the layer overwrites its input with the normalised one and adds to that", intent)
    return Passed()


def _suspect(sublayers: list[Sublayer], cause: str, intent: Intent) -> Suspect:
    return Suspect(
        RULE,
        message="the residual carries another tensor than the sublayer's input",
        cause=cause,
        measured=float(len(sublayers)),
        limit=LIMIT,
        where=tuple(dict.fromkeys(place for s in sublayers for place in s.places)),
        fix="add the tensor that the sublayer was given, before its norm",
        severity=Severity.NOTE if intent.installed else None,
    )


def _overwritten(blocks: Blocks) -> list[Sublayer]:
    """Sublayers that add to a norm of their own module, which is not the norm that ends the sublayer before them."""
    found = []
    for owner in dict.fromkeys(s.sum_in for s in blocks.residual() if s.sum_in):
        members = [s for s in blocks.sublayers if s.sum_in == owner or s.sum_in.startswith(f"{owner}.")]
        # a layer that is run in a loop is fed by its own last norm from the second time on: the first run decides
        if _adds_to_own_norm(members[0], owner):
            found += [s for s in members if _adds_to_own_norm(s, owner)]
        elif members[0].norm_before:
            found += [s for s in members[1:] if _adds_to_own_norm(s, owner)]
    return list(dict.fromkeys(found))


def _adds_to_own_norm(sublayer: Sublayer, owner: str) -> bool:
    inside = sublayer.stream_norm.startswith(f"{owner}.") or sublayer.stream_norm == owner
    return sublayer.bypass and sublayer.norm_on_stream and not sublayer.norm_before and inside
