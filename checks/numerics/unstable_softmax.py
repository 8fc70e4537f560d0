"""A softmax that overflows once scores have grown.

What it looks at
    Exponentials that are divided by their own sum, and logarithms of a softmax. Their arguments are enlarged to the
    size that trained scores reach, and the output is watched.

Why it matters
    exp overflows float32 above 88.7 and float16 above 11; inf/inf is NaN. A softmax that has rounded to 0 has the
    logarithm −inf. At initialisation scores are small and nothing shows.

What you see
    NaN after thousands of good steps, first in half precision; a loss that jumps to inf.

How to fix it
    Leave it to torch, which subtracts the maximum first::

        weights = scores.exp() / scores.exp().sum(-1, keepdim=True)      # before
        weights = scores.softmax(-1)                                     # after

    and `F.log_softmax(x, -1)` for `torch.log(x.softmax(-1))`.

When it does not apply
    The maximum is subtracted, or the argument is bounded (tanh, clamp, cosine of fixed temperature).

Where it points
    The exponential, or the logarithm.

References
    Blanchard, Higham and Higham 2021, "Accurately computing the log-sum-exp and softmax functions"; Dehghani et al.
    2023, section 3.1 (attention logits above 50,000).
"""

from __future__ import annotations

from encdoctor.evidence.exponentials import Exponential, Exponentials
from encdoctor.model import Limit, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("NUM012", "unstable-softmax", Severity.ERROR)
FINITE = Limit(
    0.0,
    "share of real outputs that are not finite with scores of 120",
    "trained attention logits pass 100 (Dehghani et al. 2023 report 50,000), exp overflows float32 at 88.7",
)


def check(exponentials: Exponentials) -> Verdict:
    bad = [found for found in exponentials.found if found.bad_share > FINITE.value]
    if not bad:
        return Passed()
    kinds = dict.fromkeys(found.kind for found in bad)
    return [_suspect([found for found in bad if found.kind == kind]) for kind in kinds]


def _suspect(bad: list[Exponential]) -> Suspect:
    first, is_exp = bad[0], bad[0].kind == "exp"
    return Suspect(
        RULE,
        message=f"scores of {first.enlarged_to:.0f} make {first.bad_share:.0%} of the outputs NaN or infinite",
        cause="exp runs without the maximum subtracted" if is_exp else "the logarithm is taken of a softmax that is 0",
        measured=first.bad_share,
        limit=FINITE,
        where=tuple(dict.fromkeys(found.place for found in bad)),
        fix="use torch.softmax, which subtracts the maximum" if is_exp else "use F.log_softmax",
        trials=tuple(
            Trial("stable_exp" if is_exp else "stable_log", tuple(f.key for f in bad if f.dim == dim), dim)
            for dim in dict.fromkeys(f.dim for f in bad)
        ),
        about=first.kind,
    )
