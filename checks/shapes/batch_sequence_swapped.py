"""Attention runs over the samples instead of over the sequence.

What it looks at
    Whether one sample's outputs move when another sample's content changes, and over which axis the softmax of each
    attention site runs. Batch and length are different primes, so that the axes cannot be taken for each other.

Why it matters
    Torch's modules expect (S, B, D) unless `batch_first=True` is given. With the axes swapped every shape still fits:
    samples attend to each other, tokens of one sentence do not.

What you see
    Results that depend on what else is in the batch; a model that cannot learn order or context; results for one
    sentence alone that differ from those in a batch.

How to fix it
    Say how your tensors are laid out, or transpose at the border::

        layer = nn.TransformerEncoderLayer(d_model, heads, batch_first=True)   # for (B, S, D)

When it does not apply
    Samples do not influence each other; attention over samples is declared (intersample attention of tables).

Where it points
    Where the attention module is constructed, then where it is called.

References
    PyTorch, `torch.nn.MultiheadAttention`, `batch_first`.
"""

from __future__ import annotations

from encdoctor.evidence.influence import SampleMixing
from encdoctor.evidence.mixing import SampleCrossing
from encdoctor.limits import SAMPLES_STAY_APART
from encdoctor.model import NotApplicable, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("SHP004", "batch-sequence-swapped", Severity.ERROR)


def check(samples: SampleMixing, crossing: SampleCrossing) -> Verdict:
    if samples.across == 0 or not crossing.all_swapped:
        return Passed(samples.across)
    if crossing.declared:
        return NotApplicable(crossing.declared)
    torch_made = bool(crossing.swapped)
    return Suspect(
        RULE,
        message="attention runs over the samples of the batch, not over the sequence",
        cause=f"the softmax of all {len(crossing.swapped) or len(crossing.swapped_at)} sites runs over the batch axis: "
        + ("batch_first does not match the tensors that come in" if torch_made else "batch and sequence are swapped"),
        measured=samples.across,
        limit=SAMPLES_STAY_APART,
        where=(*crossing.made, *crossing.swapped_at),
        fix="set batch_first to match the input" if torch_made else "transpose batch and sequence before the product",
        trials=(Trial("batch_first", crossing.swapped),) if torch_made else (),
    )
