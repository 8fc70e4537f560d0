"""A sample that is nothing but padding gives NaN, and its gradients poison every parameter.

What it looks at
    A batch in which one sample is fully padded, in eval without gradients and with them, with a loss that reads real
    positions of the other samples only.

Why it matters
    The softmax of a row of −inf is 0/0. The NaN row is easily overlooked, as no loss reads it; but in backward
    0 · NaN = NaN, and one such batch turns every weight into NaN.

What you see
    "Loss is NaN after some batches"; NaN only for documents with empty sentences, or with the last batch of an epoch.

How to fix it
    Fill with a finite minimum, or let such rows attend to nothing::

        scores = scores.masked_fill(~keep, torch.finfo(scores.dtype).min)      # uniform weights, finite
        weights = scores.softmax(-1).masked_fill(~keep.any(-1)[..., None], 0)  # zero attention output

When it does not apply
    There is no mask. Inside `nn.MultiheadAttention` and torch's fast path NaN at the padded sample itself is torch's
    behaviour, and installed packages (ESM-2) do it too: a note, with the work-around to leave one key of such rows
    visible.

Where it points
    The first operation that makes NaN out of finite numbers: the softmax, or the fill before it.

References
    pytorch/pytorch issue 24816; measured on torch 2.13: eager `nn.MultiheadAttention` with weights and the fast path
    give NaN, `scaled_dot_product_attention` gives zeros.
"""

from __future__ import annotations

from encdoctor.evidence.attention import AttentionSites
from encdoctor.evidence.numerics import EmptyRow
from encdoctor.intent import Intent
from encdoctor.model import Limit, NotApplicable, Passed, Place, Rule, Severity, Suspect, Trial, Undecided, Verdict

RULE = Rule("MSK008", "fully-padded-row-nan", Severity.WARNING)
FINITE = Limit(
    0.0, "parameters with a gradient that is not finite", "a loss that reads finite outputs has finite gradients"
)
OUTPUTS = Limit(0.0, "samples with outputs that are not finite", "what is never read may still be summed or logged")


def check(empty: EmptyRow, attention: AttentionSites | None, intent: Intent) -> Verdict:
    if not empty.measured:
        return NotApplicable(empty.why) if empty.raised is None else Undecided(empty.why, "a batch with such a row")
    if not (empty.own_row or empty.others or empty.bad_gradients):
        return Passed()
    places, keys, foreign = _places(empty, attention)
    harmful = bool(empty.others or empty.bad_gradients)
    harm = (
        f"{len(empty.bad_gradients)} of {empty.parameters} parameters get NaN gradients"
        if empty.bad_gradients
        else "other samples become NaN too"
        if empty.others
        else "its own outputs are NaN, nothing else"
    )
    return Suspect(
        RULE,
        message=f"a fully padded sample gives NaN: {harm}",
        cause=_cause(empty, foreign),
        measured=float(len(empty.bad_gradients)) if empty.bad_gradients else 1.0,
        limit=FINITE if empty.bad_gradients else OUTPUTS,
        where=places,
        fix=_fix(empty, foreign),
        trials=(Trial("finite", keys),) if keys and harmful else (),
        severity=None if harmful and not foreign and not intent.installed else Severity.NOTE,
    )


def _cause(empty: EmptyRow, foreign: bool) -> str:
    if foreign:
        return "torch's attention gives NaN where every key is hidden"
    if _by_softmax(empty):
        return "every key is hidden with −inf, so the softmax divides 0 by 0"
    return f"nothing is left of the sample, and {empty.first.operation if empty.first else 'a sum'} divides 0 by it"


def _fix(empty: EmptyRow, foreign: bool) -> str:
    if foreign:
        return "leave one key of a fully padded row visible, e.g. pad & ~pad.all(1, keepdim=True)"
    if _by_softmax(empty):
        return "fill with torch.finfo(scores.dtype).min instead of −inf, or zero such rows after the softmax"
    return "clamp the divisor, e.g. kept.sum(1).clamp(min=1)"


def _by_softmax(empty: EmptyRow) -> bool:
    return empty.first is None or "softmax" in empty.first.operation


def _places(empty: EmptyRow, attention: AttentionSites | None) -> tuple[tuple[Place, ...], tuple[str, ...], bool]:
    """Where it starts, the softmax operations to mend, and whether that is inside torch."""
    sites = attention.sites if attention is not None else ()
    keys = tuple(site.key for site in sites)
    first = empty.first
    if first is None:
        return tuple(site.place for site in sites), keys, True
    fills = [m.place for site in sites if not site.foreign for m in site.masks] if _by_softmax(empty) else []
    return (first.place, *fills), tuple({first.key, *keys}), first.foreign
