"""Compares sentences alone with the same ones behind more padding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from encdoctor.evidence.influence import PaddingInfluence
from encdoctor.evidence.leaks import Entry, PaddingAmount, PaddingEntry
from encdoctor.intent import What
from encdoctor.lab.batches import Call, make_call
from encdoctor.lab.compare import overwritten
from encdoctor.lab.gather.influence import real_outputs, relative_change
from encdoctor.lab.gather.leaks import change_between, entry_at, leading_to, vectors
from encdoctor.lab.lab import Lab, NotMeasured, Ran
from encdoctor.lab.outputs import pick
from encdoctor.lab.situations import Situation
from encdoctor.lab.trace import CONTENT, Trace

# Below this, relative to the largest number, two computations of the same number differ by rounding.
ROUNDING = 1e-8


def gather_amount(lab: Lab) -> PaddingAmount:
    """The same sentences alone and padded; only where padding's content moves nothing."""
    padding = lab.get(PaddingInfluence)
    if not padding.measured:
        return PaddingAmount(False, padding.why)
    if padding.leaks or lab.get(PaddingEntry).pooled > 0:
        return PaddingAmount(False, "padding's content already moves outputs")
    if lab.intent.says(What.LEFT_PADDING):
        return PaddingAmount(False, "the encoder is meant for padding on the left")
    wide = lab.padded
    lengths = sorted({n for n in wide.lengths if 1 < n < wide.length}, reverse=True)
    measured = [(_amount_change(lab, n, lab.dtype), n) for n in lengths]
    found = [(change, pooled, n) for (change, pooled), n in measured if change is not None]
    if not found:
        return PaddingAmount(False, "a sentence alone and a padded one give outputs of different sizes")
    change, pooled, length = max(found)
    if change <= ROUNDING:
        return PaddingAmount(True, change=change, length=length, longest=wide.length)
    if not _repeats(lab, length):
        return PaddingAmount(False, "results change from run to run")
    own, _ = _amount_change(lab, length, lab.own_dtype)
    entry = _entry_of_amount(lab, length, change, pooled)
    return PaddingAmount(True, "", change, own or 0.0, pooled, length, wide.length, entry)


def _two_widths(lab: Lab, length: int, dtype: str) -> tuple[tuple[Situation, Call], tuple[Situation, Call]]:
    """Sentences of one length alone, and the same ones padded to the usual width."""
    padded = replace(lab.padded, lengths=(length,) * lab.padded.batch, dtype=dtype)
    alone = replace(padded, length=length)
    wide, short = (make_call(lab.contract, s, lab.device) for s in (padded, alone))
    axis = lab.contract.shape.index("S")
    short.content.copy_(wide.content.narrow(axis, 0, length))
    return (alone, short), (padded, wide)


def _repeats(lab: Lab, length: int) -> bool:
    """Whether the same call gives the same result under another random state."""
    (alone, short), _ = _two_widths(lab, length, lab.dtype)
    model = lab.copy_of(lab.dtype)
    with torch.no_grad():
        one, other = (lab.forward(model, replace(alone, seed=alone.seed + seed), short) for seed in (0, 1))
    return one.output is not None and other.output is not None and change_between(one.output, other.output) <= ROUNDING


def _amount_change(lab: Lab, length: int, dtype: str) -> tuple[float | None, bool]:
    """(largest relative change, whether a pooled output shows it); None where the outputs cannot be compared."""
    (alone, short), (padded, wide) = _two_widths(lab, length, dtype)
    model = lab.copy_of(dtype)
    with torch.no_grad():
        one, other = lab.forward(model, alone, short), lab.forward(model, padded, wide)
    if one.output is None or other.output is None:
        return None, False
    changes = [(c, lab.contract.pooled) for c in (_real_change(lab, alone, one, padded, other),) if c is not None]
    twins = dict(vectors(lab, other.raw))
    changes += [
        (change_between(v, twins[p]), True)
        for p, v in vectors(lab, one.raw)
        if p in twins and v.shape == twins[p].shape
    ]
    return max(changes) if changes else (None, False)


def _real_change(lab: Lab, alone: Situation, one: Ran, padded: Situation, other: Ran) -> float | None:
    left, right = one.tensor, other.tensor
    here, there = real_outputs(lab, left, alone)[0], real_outputs(lab, right, padded)[0]
    if right.shape[1] < padded.length:  # behind a strided stem the sentence alone tells how many frames it has
        there = torch.arange(right.shape[1], device=there.device) < here.sum()
    left, right = left[:, here], right[:, there]
    if left.shape != right.shape:
        return None
    return relative_change(left, right, torch.ones(left.shape[:2], dtype=torch.bool, device=left.device))


def _entry_of_amount(lab: Lab, length: int, change: float, pooled: bool) -> Entry | None:
    (alone, short), (padded, wide) = _two_widths(lab, length, lab.dtype)
    try:
        before, after = lab.record(alone, short), lab.record(padded, wide)
    except NotMeasured:
        return None
    least = max(ROUNDING, change * 1e-3)

    def watched(raw: Any) -> list[Tensor]:
        return [t for _, t in vectors(lab, raw)] if pooled else [pick(raw, lab.contract.output)]

    return _first_by_shape(before, after, watched, least, padded, pooled)


def _first_by_shape(
    before: Trace,
    after: Trace,
    watched: Callable[[Any], list[Tensor]],
    least: float,
    padded: Situation,
    pooled: bool,
) -> Entry | None:
    """The first operation that computes other numbers at real positions when the sequence axis is longer."""
    live, reached = leading_to(before, watched), dict[int, bool]()
    stale = overwritten(before)
    length = padded.lengths[0]
    twins = {node.key: node for node in after.nodes}  # without padding another path may be taken here and there
    for node in before.nodes:
        twin = twins.get(node.key)
        by_inputs = any(reached.get(ref.node, False) for ref in node.refs)
        one, other = node.tensor, twin.tensor if twin is not None else None
        if node.index in stale or one is None or other is None or not node.taint & CONTENT:
            reached[node.index] = by_inputs
            continue
        far = _far(one, other, padded)
        reached[node.index] = by_inputs if far is None else far > least
        if reached[node.index] and not by_inputs and node.index in live:
            return entry_at(before, node, {length: None}, pooled)
    return None


def _far(alone: Tensor, padded: Tensor, situation: Situation) -> float | None:
    """The smallest difference that some way to cut the padding off leaves; None where none fits."""
    if not alone.is_floating_point():
        return None
    changes = [change_between(a, b) for a, b in _cut(alone, padded, situation) if a.numel()]
    return min(changes) if changes else None


def _cut(alone: Tensor, padded: Tensor, situation: Situation) -> Iterator[tuple[Tensor, Tensor]]:
    if alone.dim() != padded.dim():
        return
    short, samples = situation.lengths[0], situation.batch
    few, many = (tensor.shape[0] if tensor.dim() else 0 for tensor in (alone, padded))
    if few != many and few > samples and not few % samples and not many % samples:
        # positions folded into the first axis, samples slower or faster
        yield from _cut(alone.unflatten(0, (samples, -1)), padded.unflatten(0, (samples, -1)), situation)
        yield from _cut(alone.unflatten(0, (-1, samples)), padded.unflatten(0, (-1, samples)), situation)
    front, back = padded, padded
    for axis, (few, many) in enumerate(zip(alone.shape, padded.shape, strict=True)):
        if few > many:
            return
        front = front.narrow(axis, 0, few)
        # a token or two of the encoder's own may stand behind the padding
        tail = min(max(few - short, 0), 2) if few != many else 0
        body = back.narrow(axis, 0, few - tail)
        back = torch.cat([body, back.narrow(axis, many - tail, tail)], axis) if tail else body
    yield alone, front
    yield alone, back
