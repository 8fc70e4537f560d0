"""Heads are merged without moving them back first.

What it looks at
    Every attention weight is replaced by the identity, and one position's content is changed. A sound encoder is then
    position-wise to the bit. Where it is not, the operations are walked in order: the first rearrangement of axes,
    behind the product with the values, after which that position's content stands at several positions is the culprit.

Why it matters
    `reshape(B, S, D)` on (B, H, S, head_dim) glues features of different tokens together. The shape is right, so
    nothing crashes.

What you see
    A model that learns slowly and badly, and forgets which word is where.

How to fix it
    Move the heads back, then merge::

        out = mixed.reshape(B, S, D)                     # before
        out = mixed.transpose(1, 2).reshape(B, S, D)     # after

When it does not apply
    Attention is not seen, or not square; tokens are mixed on purpose by a convolution or a pooling.

Where it points
    The reshape.

References
    Vaswani et al. 2017, section 3.2.2.
"""

from __future__ import annotations

from encdoctor.evidence.mixing import TokenMixing
from encdoctor.limits import POSITIONS_STAY_WHOLE
from encdoctor.model import NotApplicable, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("SHP003", "heads-merge-wrong", Severity.ERROR)


def check(mixing: TokenMixing) -> Verdict:
    if not mixing.measured:
        return NotApplicable(mixing.why)
    scramble = mixing.scramble
    if scramble is None or not scramble.merging:
        return Passed()
    return Suspect(
        RULE,
        message=f"heads are merged across positions: {scramble.before} becomes {scramble.after}",
        cause=f"with attention switched to the identity, one position still reaches {scramble.reached} of "
        f"{scramble.length} here: heads were not moved back behind the positions",
        measured=scramble.change,
        limit=POSITIONS_STAY_WHOLE,
        where=scramble.places,
        fix="transpose(1, 2) before the reshape",
        trials=(Trial("keep_positions", scramble.keys, float(scramble.length)),),
    )
