"""A pre-norm stack hands on its raw sum: the norm at its end is missing.

What it looks at
    Where the norms stand. With norms in front of the sublayers, nothing ever normalises the stream itself; each
    sublayer adds to it. The typical size of the stream is measured before the first and after the last sublayer.

Why it matters
    The output's scale depends on the depth and on the input, grows in training without a bound, and differs from token
    to token. The head has to cope with it, its loss starts off, and half precision comes nearer to overflow.

What you see
    Outputs that grow with the number of layers; a loss that starts far from ln C; a head that wants its own learning
    rate.

How to fix it
    Normalise once more, behind the last layer::

        for layer in self.layers:
            x = layer(x)
        return self.norm(x)          # was: return x

    `nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(d_model))` has a place for it.

When it does not apply
    Post-norm stacks; stacks whose head begins with a norm. Where the stream is hardly changed so far it is a note.

Where it points
    The last sum of the stack, and where its result is handed on.

References
    Xiong et al. 2020, On Layer Normalization in the Transformer Architecture, section 3 and figure 1(b).
"""

from __future__ import annotations

from encdoctor.evidence.blocks import Blocks
from encdoctor.intent import Intent
from encdoctor.model import Confidence, Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("BLK003", "final-norm-missing", Severity.WARNING)
GROWTH = Limit(
    1.25,
    "size of the stream after the last sublayer, relative to before the first",
    "a norm at the end makes this 1 for the reader of the output; shallow pre-norm stacks that were measured to do "
    "no harm stay below 1.2",
)


def check(blocks: Blocks, intent: Intent) -> Verdict:
    residual = blocks.residual()
    if not blocks.understood or not residual:
        return NotApplicable("no stream with residuals was recognised")
    if blocks.norm_placement != "pre":
        return NotApplicable(f"norm placement is {blocks.norm_placement}")
    if blocks.final_norm:
        return Passed()
    before, after = residual[0].size_in or residual[0].size_branch, residual[-1].size_out
    growth = after / before if before else 1.0
    harmless = growth < GROWTH.value or intent.installed
    return Suspect(
        RULE,
        message="the pre-norm stack's output is never normalised",
        cause=f"{len(residual)} sublayers add to a stream that no norm acts on; its size is {after:.2g} at the end",
        measured=growth,
        limit=GROWTH,
        where=blocks.final,
        fix="apply a norm to the output of the last layer",
        severity=Severity.NOTE if harmless else None,
        confidence=Confidence.LIKELY,
    )
