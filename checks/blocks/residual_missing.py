"""A sublayer has no way around it: the residual is missing.

What it looks at
    The stream from the first attention to the output is followed through the recorded operations. Around a sublayer
    of a sound encoder leads a path of elementwise operations alone: a sum, a gated sum, a stochastic branch. Where
    every path goes through the sublayer's own linear maps, there is none.

Why it matters
    Each sublayer then has to hand on everything that later ones need, and the gradient has to come back through every
    one of them. Signal and gradient fade or blow up with depth, and the tokens of one sentence become alike.

What you see
    A deep model that does not train, or only with a tiny learning rate; a shallow one that is worse than expected.

How to fix it
    Add the sublayer's input to its result::

        x = self.attention(self.norm(x))          # before
        x = x + self.attention(self.norm(x))      # after

When it does not apply
    Highway gates, stochastic depth, LayerScale and ReZero have a way around; parallel branches share one; attention
    to latents and pooling by attention change the length or read other keys and are not expected to have one.

Where it points
    The line that takes up the sublayer's result, where the sum should stand.

References
    He et al. 2016, Deep Residual Learning; Dong et al. 2021, Attention is not all you need (rank collapses doubly
    exponentially without skips).
"""

from __future__ import annotations

from encdoctor.evidence.blocks import Blocks, Sublayer
from encdoctor.intent import Intent
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Undecided, Verdict

RULE = Rule("BLK001", "residual-missing", Severity.ERROR)
LIMIT = Limit(
    0.0,
    "sublayers without a way around them",
    "every attention and feed-forward of 54 healthy encoders that keep the length has one; without, rank collapses "
    "doubly exponentially with depth (Dong et al. 2021)",
)


def check(blocks: Blocks, intent: Intent) -> Verdict:
    if not blocks.understood:
        return NotApplicable(f"the stream was not recognised: {blocks.why}")
    expected = [s for s in blocks.sublayers if s.expected]
    without = [s for s in expected if not s.bypass]
    if not without:
        return Passed()
    if len(expected) == 1 and not blocks.residual():
        return Undecided("the only attention has no residual, with nothing to compare it with", "a deeper model")
    kinds = dict.fromkeys(s.kind for s in without)
    return [_suspect([s for s in without if s.kind is kind], intent) for kind in kinds]


def _suspect(without: list[Sublayer], intent: Intent) -> Suspect:
    kind = without[0].kind.value
    first = [s.places[0] for s in without if s.places]
    rest = [place for s in without for place in s.places[1:]]
    return Suspect(
        RULE,
        message=f"no residual around the {kind}",
        cause=f"every path through {_named(without)} goes through its maps: its input is not added to its result",
        measured=float(len(without)),
        limit=LIMIT,
        where=tuple(dict.fromkeys(first + rest)),
        fix=f"add the input of the {kind} to its result: x = x + f(x)",
        severity=Severity.NOTE if intent.installed else None,
        about=kind,
    )


def _named(sublayers: list[Sublayer]) -> str:
    layers = [s.layer or "the model" for s in sublayers]
    return layers[0] if len(layers) == 1 else f"{layers[0]} and {len(layers) - 1} more"
