"""Heads are cut out of the sequence instead of out of the features.

What it looks at
    Every attention weight is replaced by the identity, and one position's content is changed. A sound encoder is then
    position-wise to the bit. Where it is not, the operations are walked in order: the first rearrangement of axes after
    which that position's content stands at several positions is the culprit.

Why it matters
    `view(B, H, S, head_dim)` on (B, S, D) has the right shape and the wrong numbers: a head sees a stretch of the
    sentence in place of a slice of every token. Nothing crashes, masks hide the wrong things, training goes badly.

What you see
    A model that learns slowly and badly; padding that leaks though the mask is right.

How to fix it
    Split the last axis, then move the heads forward::

        q = q.view(B, H, S, head_dim)                    # before
        q = q.view(B, S, H, head_dim).transpose(1, 2)    # after

When it does not apply
    Attention is not seen, or not square; tokens are mixed on purpose by a convolution or a pooling.

Where it points
    The view or reshape.

References
    Vaswani et al. 2017, section 3.2.2.
"""

from __future__ import annotations

from encdoctor.evidence.mixing import TokenMixing
from encdoctor.limits import POSITIONS_STAY_WHOLE
from encdoctor.model import NotApplicable, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("SHP002", "heads-split-wrong", Severity.ERROR)


def check(mixing: TokenMixing) -> Verdict:
    if not mixing.measured:
        return NotApplicable(mixing.why)
    scramble = mixing.scramble
    if scramble is None or scramble.merging:
        return Passed()
    return Suspect(
        RULE,
        message=f"heads are split across positions: {scramble.before} is taken as {scramble.after}",
        cause=f"with attention switched to the identity, one position still reaches {scramble.reached} of "
        f"{scramble.length} here: the axes were renamed, not moved",
        measured=scramble.change,
        limit=POSITIONS_STAY_WHOLE,
        where=scramble.places,
        fix="view as (B, S, H, head_dim), then transpose(1, 2)",
        trials=(Trial("keep_positions", scramble.keys, float(scramble.length)),),
    )
