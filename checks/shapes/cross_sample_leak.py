"""Samples of one batch influence each other.

What it looks at
    The whole content of one sample is replaced, in eval mode; no other sample's outputs may move. Where they do, two
    recordings are compared, and the first operation that carries it across is named.

Why it matters
    A result that depends on its neighbours in the batch cannot be repeated, and changes with the batch size.

What you see
    The same sentence gets another vector in another batch, padding or not.

How to fix it
    Take statistics, softmax and reshapes per sample::

        mean = x.mean(dim=(0, 1), keepdim=True)    # before: over batch and time
        mean = x.mean(dim=-1, keepdim=True)        # after: over the features of each token

When it does not apply
    Samples do not move each other in eval (batch norm in train mode is another rule's); it is declared: contrastive
    or intersample models.

Where it points
    The operation that takes samples together.

References
    Ba et al. 2016, Layer Normalization, on why statistics over the batch do not suit sequences.
"""

from __future__ import annotations

from encdoctor.evidence.influence import SampleMixing
from encdoctor.evidence.mixing import SampleCrossing
from encdoctor.intent import Intent
from encdoctor.limits import SAMPLES_STAY_APART
from encdoctor.model import NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("SHP009", "cross-sample-leak", Severity.ERROR)


def check(samples: SampleMixing, crossing: SampleCrossing, intent: Intent) -> Verdict:
    if samples.across == 0 or crossing.all_swapped:
        return Passed(samples.across)
    if crossing.declared:
        return NotApplicable(crossing.declared)
    what = f"`{crossing.operation}`" if crossing.operation else "an operation that was not recognised"
    return Suspect(
        RULE,
        message="changing one sample changes the results of others in the same batch",
        cause=f"{what} takes samples together; this is in eval mode, so it is no batch norm in training",
        measured=samples.across,
        limit=SAMPLES_STAY_APART,
        where=crossing.places,
        fix="keep the batch axis out of means, softmax, sorting and reshapes",
        severity=Severity.NOTE if intent.installed else None,
    )
