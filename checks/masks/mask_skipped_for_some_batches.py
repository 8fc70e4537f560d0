"""The mask works in the usual batch and is left out in others: alone, in equal lengths, in training.

What it looks at
    Padding's content is replaced in a batch of one, in a batch of equal lengths, in a longer one, and in training with
    gradients, where a checkpoint may take another path. In the usual batch it moves nothing.

Why it matters
    A shortcut that saves a mask takes the right results along: what was tested is not what runs in use or in training.

What you see
    Right in a batch, wrong alone; validation better than training should allow; results that depend on the batch size.

How to fix it
    Hand the mask on in every branch::

        x = checkpoint(layer, x, keep, use_reentrant=False)     # not checkpoint(layer, x)

When it does not apply
    There is no mask, or padding moves outputs in every batch (other rules). Norms over the batch act in training by
    design.

Where it points
    The call that does not hand the mask on, else the scores without a mask.

References
    PyTorch, `torch.utils.checkpoint.checkpoint`: arguments after the function are handed on.
"""

from __future__ import annotations

from encdoctor.evidence.masks import Variants
from encdoctor.limits import PADDING_MOVES_NOTHING
from encdoctor.model import NotApplicable, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("MSK022", "mask-skipped-for-some-batches", Severity.ERROR)


def check(variants: Variants) -> Verdict:
    if not variants.measured:
        return NotApplicable(variants.why)
    if not variants.leaking:
        return Passed()
    worst = max(variants.leaking, key=lambda v: v.change)
    names = " and in ".join(variant.name for variant in variants.leaking)
    keys = tuple(dict.fromkeys(key for variant in variants.leaking for key in variant.keys))
    return Suspect(
        RULE,
        message=f"padding is masked in the usual batch, yet read in {names}",
        cause="another path is taken there, without the mask",
        measured=worst.change,
        limit=PADDING_MOVES_NOTHING,
        where=tuple(dict.fromkeys(place for variant in variants.leaking for place in variant.places)),
        fix="hand the mask on in every branch",
        trials=(Trial("mask_keys", keys),) if keys else (),
    )
