"""The pooled vector is taken over padding too.

What it looks at
    Outputs without positions, while padding's content and amount change and outputs at real positions stay. The two
    runs are compared operation by operation, to the one that turns positions into one vector and moves.

Why it matters
    Attention is masked, and padding comes back in through the mean: the longer the batch, the further every short
    sentence is drawn towards one vector.

What you see
    A sentence's vector, and its class, changes with the batch it is in.

How to fix it
    Pool over real tokens::

        mean = (x * keep[..., None]).sum(1) / keep.sum(1, keepdim=True).clamp(min=1)   # not x.mean(1)
        top = x.masked_fill(~keep[..., None], torch.finfo(x.dtype).min).amax(1)        # not x.amax(1)

When it does not apply
    There is no mask, or nothing is pooled. A [CLS] token is no pooling over positions.

Where it points
    The pooling.

References
    Reimers and Gurevych 2019 (Sentence-BERT), mean pooling over tokens.
"""

from __future__ import annotations

from encdoctor.evidence.influence import PaddingInfluence
from encdoctor.evidence.leaks import Entry, PaddingAmount, PaddingEntry, Way
from encdoctor.limits import PADDING_MOVES_NOTHING
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("MSK013", "pooling-includes-padding", Severity.ERROR)
ALIKE = Limit(
    1e-6,
    "relative change of a pooled output behind more padding",
    "rounding of float32 parts inside a float64 model reaches 9e-8; true faults start at 7e-6",
)


def check(padding: PaddingInfluence, entering: PaddingEntry, amount: PaddingAmount) -> Verdict:
    if not padding.measured:
        return NotApplicable(padding.why)
    by_content = max(padding.on_padding if padding.leaks else 0.0, entering.pooled)
    if _pools(entering.entry):
        return _suspect(entering.entry, by_content, PADDING_MOVES_NOTHING, entering.pooled_output)
    if amount.measured and _pools(amount.entry) and min(amount.change, amount.change_own) > ALIKE.value:
        return _suspect(amount.entry, amount.change, ALIKE, "")
    return Passed(amount.change if amount.pooled else 0.0)


def _pools(entry: Entry | None) -> bool:
    return entry is not None and entry.way is Way.POOLING


def _suspect(entry: Entry | None, measured: float, limit: Limit, output: str) -> Suspect:
    assert entry is not None
    return Suspect(
        RULE,
        message=f"the pooled output{f' at {output}' if output else ''} includes padding",
        cause=f"{entry.operation} runs over all positions, real or not",
        measured=measured,
        limit=limit,
        where=(entry.place,),
        fix="pool over real tokens: (x * keep[..., None]).sum(1) / keep.sum(1, keepdim=True)",
        trials=(Trial("pool_real", (entry.key,)),),
    )
