"""Fixed positions drown the token embeddings.

What it looks at
    The size of the token part and of the position part where they are added, the position part being a fixed table, and
    how far outputs differ between two sentences compared with two positions.

Why it matters
    A sinusoid has a standard deviation of 0.71. Token vectors drawn with d_model^-0.5 or 0.02 are ten to thirty times
    smaller, unless they are multiplied by √d_model as in the paper. The encoder then sees where words stand, and
    hardly which words they are.

What you see
    Slow start, outputs of different sentences nearly alike at the same position.

How to fix it
    Scale where the lookup is::

        x = self.embed(ids) * math.sqrt(self.d_model)
        x = x + self.positions[: ids.shape[1]]

When it does not apply
    Positions are learned (they adapt), rotary or relative; a norm on the token part comes first; `nn.Embedding` with
    its own N(0, 1).

Where it points
    The lookup.

References
    Vaswani et al. 2017, section 3.4: "we multiply those weights by √d_model".
"""

from __future__ import annotations

from encdoctor.evidence.embeddings import EmbeddingScale
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("EMB001", "embedding-scale-missing", Severity.WARNING)
RATIO = Limit(
    0.1,
    "token part over position part",
    "below a tenth, tokens are less than 1 % of the sum's variance; with ×√d_model the ratio is near 1",
)
# Outputs that differ this much less between sentences than between positions do not tell words apart.
HARM = 0.5
# Vectors that are as large as they were looked up, to rounding, were not scaled.
UNSCALED = 0.01


def check(scale: EmbeddingScale) -> Verdict:
    if not scale.found:
        return NotApplicable(scale.why)
    if scale.learned:
        return NotApplicable("the positions are learned, so training can bring them to size")
    if abs(scale.factor - 1) > UNSCALED:
        return Passed(scale.ratio, "looked-up vectors are scaled; by how much is another rule's to judge")
    if scale.normalised:
        return NotApplicable("a norm acts on the tokens before positions are added")
    harmed = scale.sentence_change < HARM * scale.position_change
    if scale.ratio >= RATIO.value or not harmed:
        return Passed(scale.ratio)
    return Suspect(
        RULE,
        message=f"tokens are {scale.ratio:.2g} of the size of the fixed positions that are added to them",
        cause=f"standard deviation {scale.token:.2g} against {scale.position:.2g}, and no ×√d_model = "
        f"{scale.d_model**0.5:.3g}",
        measured=scale.ratio,
        limit=RATIO,
        where=(scale.lookup, scale.added),
        fix=f"multiply the looked-up vectors by √d_model, {scale.d_model**0.5:.3g} here",
        trials=(Trial("scale", (scale.key,), scale.d_model**0.5),),
    )
