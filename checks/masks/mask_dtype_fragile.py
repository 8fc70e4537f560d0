"""The same mask in another dtype means something else, and nothing complains.

What it looks at
    The padded batch with its mask as bool, as int64 and as float of zeros and ones. Real outputs have to stay, or the
    encoder has to refuse. Where scores get the mask added, that line is named.

Why it matters
    Tokenisers give int64, collate functions float, comparisons bool. `~` on integers turns 1 into −2, not into 0, and
    adding a mask of zeros and ones raises scores by 1 instead of hiding them.

What you see
    Fine in the unit test, results that depend on padding in the pipeline.

How to fix it
    Convert once, at the border::

        keep = attention_mask.to(torch.bool)

When it does not apply
    The encoder takes lengths or an additive mask, or refuses other dtypes. Masks that are handed straight to torch's
    own attention: there a float mask is added by contract, which is a note where the dtype is not documented.

Where it points
    The line that adds the mask to the scores, else the places where masks are applied.

References
    PyTorch, `torch.nn.functional.scaled_dot_product_attention`, `attn_mask`.
"""

from __future__ import annotations

from encdoctor.contract import CallContract
from encdoctor.evidence.attention import AttentionSites
from encdoctor.evidence.masks import MaskDtypes
from encdoctor.intent import Intent
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("MSK011", "mask-dtype-fragile", Severity.WARNING)
SAME = Limit(
    1e-4,
    "relative change of real outputs under the same mask in another dtype",
    "the same keys are hidden, so that only float32 rounding, 3e-6 at most, may differ",
)


def check(contract: CallContract, dtypes: MaskDtypes, attention: AttentionSites, intent: Intent) -> Verdict:
    if not dtypes.measured or contract.mask is None:
        return NotApplicable(dtypes.why)
    silent = [t for t in dtypes.tried if t.raised is None and t.change > SAME.value]
    if not silent:
        return Passed(max((t.change for t in dtypes.tried), default=0.0))
    by_torch = all(t.by_torch for t in silent)
    if by_torch and contract.mask.certain:
        return Passed(reason="torch's attention adds float masks, as its contract says, and the dtype is documented")
    added = [place for t in silent for place in t.added]
    applied = [site.applied(mask) for site in attention.sites for mask in site.masks if mask.from_mask]
    names = " and ".join(t.dtype for t in silent)
    return Suspect(
        RULE,
        message=f"as {names} the same mask means something else than as {dtypes.usual}, without any error",
        cause="it is added to the scores as it is" if added else "its zeros and ones are taken for something else",
        measured=max(t.change for t in silent),
        limit=SAME,
        where=tuple(dict.fromkeys(added or applied)),
        fix="convert it once where it comes in: mask.to(torch.bool)",
        severity=Severity.NOTE if by_torch or intent.installed else None,
    )
