"""No output depends on any other token: attention is computed and thrown away.

What it looks at
    Each token is replaced in turn, and all outputs are watched. Where nothing but the token's own output moves, the
    recorded operations tell whether attention's result reaches the output at all.

Why it matters
    The encoder is a bag of single words: every vector is what it would be without a context.

What you see
    The same vector for a word in every sentence; accuracy of a bag-of-words model; attention parameters without a
    gradient.

How to fix it
    Use what attention returned::

        a = self.attention(h)
        x = x + h          # before
        x = x + a          # after

When it does not apply
    Gates that start at zero (ReZero) hide attention on fresh weights: it reaches the output then, times zero. Models
    without attention. Of a pooled output only the second half is asked: whether any attention reaches it.

Where it points
    The line behind the attention where the stream goes on without its result.

References
    Vaswani et al. 2017, section 3.1.
"""

from __future__ import annotations

from encdoctor.evidence.blocks import Blocks
from encdoctor.evidence.influence import InfluenceMatrix
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("BLK011", "no-token-mixing", Severity.ERROR)
LIMIT = Limit(
    0.0,
    "largest influence of one token on another's output",
    "exactly 0 only where no path leads from one position to another",
)


def check(blocks: Blocks, influence: InfluenceMatrix) -> Verdict:
    if not blocks.understood:
        return NotApplicable("no attention was recognised")
    matrix = influence.full
    others = 0.0
    if matrix is not None and matrix.shape[0] == matrix.shape[1] and len(matrix) > 1:
        size = len(matrix)
        others = max(abs(float(matrix[i, j])) for i in range(size) for j in range(size) if i != j)
    # layers that take no part as a whole are another fault
    left_out = [site for site in blocks.dead if site.after is not None]
    if others > LIMIT.value or len(left_out) < blocks.sites:
        return Passed(others)
    places = [place for site in left_out for place in (site.after, site.place) if place is not None]
    return Suspect(
        RULE,
        message="no token sees another: attention's result is not used",
        cause=f"{len(left_out)} attention sites are computed, and none of them reaches the output",
        measured=others,
        limit=LIMIT,
        where=tuple(dict.fromkeys(places)),
        fix="add the result of attention to the stream",
    )
