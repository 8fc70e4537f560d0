"""Batch norm stands where an encoder needs a norm of each token.

What it looks at
    Norms on the stream, and in front of attention and feed-forward. Where batch norm stands there, one sample is
    changed in train mode, and the others are watched.

Why it matters
    Its statistics run over the other samples and over padding: a sentence's vector depends on what else is in the
    batch, and on how much padding there is. In eval other statistics are used, so that the two modes differ.

What you see
    Good training loss, worse evaluation; results that change with the batch size; trouble with batches of one.

How to fix it
    Normalise each token for itself::

        self.norm = nn.BatchNorm1d(d_model)      # before, with transposes around it
        self.norm = nn.LayerNorm(d_model)        # after

When it does not apply
    Batch norm in convolutional stems and in the convolution module of a Conformer. In installed packages it is a note:
    encoders of time series use it on purpose.

Where it points
    The line that calls the norm.

References
    Shen et al. 2020, PowerNorm: Rethinking Batch Normalization in Transformers.
"""

from __future__ import annotations

from encdoctor.evidence.blocks import Blocks
from encdoctor.intent import Intent
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("BLK005", "batchnorm-in-encoder", Severity.WARNING)
LIMIT = Limit(
    0.0,
    "relative change of other samples in train mode when one sample changes",
    "with a norm of each token, samples do not meet: 119 of 120 healthy packages without batch norm measured 0",
)


def check(blocks: Blocks, intent: Intent) -> Verdict:
    if not blocks.understood:
        return NotApplicable(f"the stream was not recognised: {blocks.why}")
    if not blocks.batch_norms or blocks.across_samples <= LIMIT.value:
        return Passed(blocks.across_samples)
    return Suspect(
        RULE,
        message="batch norm on the token stream ties the samples of a batch together",
        cause="mean and variance are taken over samples and positions, padding included",
        measured=blocks.across_samples,
        limit=LIMIT,
        where=tuple(dict.fromkeys(norm.place for norm in blocks.batch_norms)),
        fix="use nn.LayerNorm over the features",
        severity=Severity.NOTE if intent.installed else None,
    )
