"""A norm runs over the sequence: tokens are normalised with one another.

What it looks at
    Every attention weight is replaced by the identity. An encoder is then position-wise, and the first operation that
    still carries one position's content to others is the culprit: here the statistics of a norm.

Why it matters
    A token's vector depends on all others, padding and its amount included, whatever the attention mask says. Lengths
    and batches give different results for the same text.

What you see
    Results that change with padding though attention is masked; a causal model that sees the future.

How to fix it
    Normalise over the features::

        mean, var = x.mean(1, keepdim=True), x.var(1, keepdim=True)        # before: (B, S, D) over S
        mean, var = x.mean(-1, keepdim=True), x.var(-1, keepdim=True)      # after

    `nn.LayerNorm(d_model)`, not `nn.LayerNorm([length, d_model])`.

When it does not apply
    Group norm in convolutional stems; encoders whose attention is not recognised, or not square.

Where it points
    The line that takes the statistics.

References
    Ba et al. 2016, Layer Normalization, section 3: statistics over the features of one case.
"""

from __future__ import annotations

from encdoctor.evidence.blocks import Blocks
from encdoctor.evidence.influence import SampleMixing
from encdoctor.evidence.mixing import TokenMixing
from encdoctor.intent import Intent
from encdoctor.limits import SAMPLES_STAY_APART
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("BLK018", "norm-wrong-axis", Severity.ERROR)
LIMIT = Limit(
    0.0,
    "largest change at other positions with attention replaced by the identity",
    "a sound encoder is position-wise then, to the bit: 24 of 24 healthy packages with square attention",
)


def check(mixing: TokenMixing, blocks: Blocks, samples: SampleMixing, intent: Intent) -> Verdict:
    if not mixing.measured:
        return NotApplicable(mixing.why)
    if samples.across > SAMPLES_STAY_APART.value:
        return Passed(samples.across, "samples mix as well: cross-sample-leak says where")
    mixer = mixing.mixer
    if mixer is None or mixer.key not in blocks.norm_keys:
        return Passed(0.0 if mixer is None else mixer.change, "" if mixer is None else f"{mixer.operation} is no norm")
    return Suspect(
        RULE,
        message="a norm takes its statistics over the sequence",
        cause=f"{mixer.operation} carries one position's content to {mixer.reached}",
        measured=mixer.change,
        limit=LIMIT,
        where=(mixer.place,),
        trials=(Trial("over_features", blocks.norm_keys),),
        fix="take mean and variance over the last axis, the features of each token",
        severity=Severity.NOTE if intent.installed else None,
    )
