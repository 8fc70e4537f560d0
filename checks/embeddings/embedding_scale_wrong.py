"""Token embeddings are scaled by the wrong factor.

What it looks at
    By what looked-up vectors are multiplied before a fixed position table is added, and how large the two parts
    are then.

Why it matters
    ×√d_model in the paper brings vectors drawn with d_model^-0.5 to the size of the sinusoid. Divided by √d_model they
    vanish beside it; multiplied when they already are of size 1, or twice, they drown it.

What you see
    Different sentences, or different orders, give nearly the same outputs at the start; slow training.

How to fix it
    One scale, that fits the initialisation::

        x = self.embed(ids) / math.sqrt(d_model)      # before
        x = self.embed(ids) * math.sqrt(d_model)      # after, with std d_model**-0.5
        x = self.embed(ids)                           # or, with nn.Embedding's own N(0, 1)

When it does not apply
    No factor is applied; positions are learned, rotary or relative; a norm acts on the tokens first.

Where it points
    The lookup, and the sum with the positions.

References
    Vaswani et al. 2017, section 3.4.
"""

from __future__ import annotations

from encdoctor.evidence.embeddings import EmbeddingScale
from encdoctor.intent import Intent
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("EMB002", "embedding-scale-wrong", Severity.WARNING)
DROWNED = Limit(
    0.1,
    "smaller part over larger part",
    "below a tenth, one part is less than 1 % of the sum's variance; ×√d_model on std d_model^-0.5 gives 0.7",
)
SCALED = 0.01


def check(scale: EmbeddingScale, intent: Intent) -> Verdict:
    if not scale.found:
        return NotApplicable(scale.why)
    if scale.learned or scale.normalised:
        return NotApplicable("the positions are learned" if scale.learned else "a norm acts on the tokens first")
    smaller = min(scale.ratio, 1 / scale.ratio if scale.ratio else 0.0)
    shrunk, grown = scale.factor < 1 - SCALED, scale.factor > 1 + SCALED
    if smaller >= DROWNED.value or not (shrunk if scale.ratio < 1 else grown):
        return Passed(smaller)
    lost, size = ("tokens", scale.token) if scale.ratio < 1 else ("positions", scale.position)
    right = scale.d_model**0.5 if scale.ratio < 1 else 1.0
    return Suspect(
        RULE,
        message=f"looked-up vectors are multiplied by {scale.factor:.3g}, and {lost} drown in the sum",
        cause=f"standard deviation {scale.token:.2g} of tokens against {scale.position:.2g} of the fixed positions; "
        f"{lost} are {size**2 / (scale.token**2 + scale.position**2):.1%} of the variance",
        measured=smaller,
        limit=DROWNED,
        where=(scale.lookup, scale.added),
        fix=f"multiply by √d_model, {right:.3g} here" if scale.ratio < 1 else "leave vectors of size 1 unscaled, or "
        "draw them with d_model^-0.5",
        trials=(Trial("scale", (scale.key,), right / scale.factor),),
        severity=Severity.NOTE if intent.installed else None,
    )
