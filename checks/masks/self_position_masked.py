"""No token may attend to itself.

What it looks at
    The diagonal of the attention weights at every site whose queries and keys are the same positions. It is exactly 0
    at all of them, and a mask is what makes it so.

Why it matters
    A token's own content reaches its attention output at no layer; the first token under a causal mask that starts on
    the diagonal sees nothing at all. Mostly it is a triangle or an identity matrix that is off by one.

What you see
    Attention maps with a black diagonal; worse results than a plain encoder; NaN or uniform weights in a sentence of
    one token.

How to fix it
    Leave the diagonal visible::

        later = torch.ones(S, S, dtype=torch.bool).triu(1)    # not triu(0)

    and drop a mask that is made from `torch.eye`.

When it does not apply
    The author says so: locality self-attention, "attends to all other tokens". In an installed package it is a note.

Where it points
    The operation that hides the diagonal.

References
    Lee et al. 2021 (Vision Transformer for Small-Size Datasets) mask the diagonal on purpose, and say so.
"""

from __future__ import annotations

from encdoctor.evidence.attention import AttentionSites
from encdoctor.intent import Intent, What
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("MSK016", "self-position-masked", Severity.WARNING)
SOME = Limit(
    0.0, "largest weight on the own position", "a softmax gives a visible key more than 0; exactly 0 is a mask"
)


def check(attention: AttentionSites, intent: Intent) -> Verdict:
    declared = intent.of(What.EXCLUDE_SELF)
    if declared is not None and declared.value:
        return NotApplicable(f"declared: {declared.source}")
    square = [site for site in attention.sites if site.on_self is not None]
    if not square:
        return NotApplicable("no attention site whose queries and keys are the same positions was seen")
    largest = max(site.on_self or 0.0 for site in square)
    masks = [(site, mask) for site in square for mask in site.masks if mask.hides_self]
    if largest > 0 or not masks:
        return Passed(largest)
    return Suspect(
        RULE,
        message="no token attends to itself: the diagonal is masked",
        cause=f"the weight on the own position is exactly 0 at all {len(square)} sites",
        measured=0.0,
        limit=SOME,
        where=tuple(place for site, mask in masks for place in reversed(site.made(mask))),
        fix="leave the diagonal visible: triu(1) instead of triu(0), or no mask from torch.eye",
        trials=(Trial("without_mask", tuple(mask.key for _, mask in masks)),),
        severity=Severity.NOTE if intent.installed else None,
    )
