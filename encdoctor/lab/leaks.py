"""Finds the operation through which padding gets in, by comparing two recordings that differ in padding alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from encdoctor.evidence.influence import PaddingInfluence
from encdoctor.evidence.leaks import Entry, PaddingAmount, PaddingEntry, Way
from encdoctor.intent import What
from encdoctor.lab.batches import Call, make_call
from encdoctor.lab.compare import ancestors, overwritten, paired
from encdoctor.lab.influence import padding_runs, real_outputs, relative_change, with_other_padding
from encdoctor.lab.lab import Lab, NotMeasured, Ran
from encdoctor.lab.layout import Reading, read_positions
from encdoctor.lab.outputs import pick
from encdoctor.lab.sites import SOFTMAXES, VIEWS, base_name, score_paths
from encdoctor.lab.situations import Situation
from encdoctor.lab.trace import CONTENT, Node, Trace

# They shorten the sequence and leave positions; what else shortens it away is pooling.
STRIDED = {"convolution", "avg_pool1d", "avg_pool2d", "max_pool1d_with_indices", "max_pool2d_with_indices", "unfold"}
# Below this, relative to the largest number, two computations of the same number differ by rounding.
ROUNDING = 1e-8


def gather_entry(lab: Lab) -> PaddingEntry:
    """After a symptom only: real outputs, or pooled ones, that move with padding's content."""
    padding = lab.get(PaddingInfluence)
    if not padding.measured:
        return PaddingEntry()
    situation = replace(lab.padded, dtype=lab.dtype)
    if padding.leaks:
        return PaddingEntry(entry_of_content(lab, situation, lab.contract.pooled))
    pooled, path = _pooled_change(lab, situation)
    if pooled == 0 or _pooled_change(lab, replace(situation, dtype=lab.own_dtype))[0] == 0:
        return PaddingEntry()
    entry = _entry_of_content(lab, situation, lambda raw: [t for p, t in vectors(lab, raw) if p == path], True)
    return PaddingEntry(entry, pooled, path)


def _pooled_change(lab: Lab, situation: Situation) -> tuple[float, str]:
    """How far outputs without positions move, beside the one that is looked at."""
    base, others = padding_runs(lab, situation)
    found = [(0.0, "")]
    for path, vector in vectors(lab, base.raw):
        for other in others:
            twin = dict(vectors(lab, other.raw)).get(path)
            if twin is not None and twin.shape == vector.shape:
                found.append((_change(vector, twin), path))
    return max(found)


def vectors(lab: Lab, raw: Any) -> Iterator[tuple[str, Tensor]]:
    """Float tensors (B, F) in what forward returned, with their paths."""
    for path, tensor in _tensors(raw, ""):
        if tensor.dim() == 2 and tensor.is_floating_point() and tensor.shape[0] == lab.padded.batch:
            yield path, tensor


def _tensors(raw: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(raw, Tensor):
        yield path, raw
    elif isinstance(raw, Mapping):
        for name, value in raw.items():
            yield from _tensors(value, f"{path}['{name}']")
    elif isinstance(raw, list | tuple):
        for index, value in enumerate(raw):
            yield from _tensors(value, f"{path}[{index}]")
    elif is_dataclass(raw) and not isinstance(raw, type):
        for field in fields(raw):
            yield from _tensors(getattr(raw, field.name), f"{path}.{field.name}")


# ---- content ---------------------------------------------------------------------------------------------------


def entry_of_content(lab: Lab, situation: Situation, pooled: bool) -> Entry | None:
    """Where padding's content reaches the main output."""
    return _entry_of_content(lab, situation, lambda raw: [pick(raw, lab.contract.output)], pooled)


def _entry_of_content(
    lab: Lab, situation: Situation, watched: Callable[[Any], list[Tensor]], pooled: bool
) -> Entry | None:
    trace = lab.trace(situation)
    reading = read_positions(lab, situation, trace)
    one, other = (with_other_padding(lab, situation, seed) for seed in (3, 1))
    before, after = one[0].trace(one[1]), other[0].trace(other[1])
    return _first(before, after, watched, lambda a, b: not _only_padding(_differ(a, b), reading), reading.real, pooled)


def _differ(one: Tensor, other: Tensor) -> Tensor:
    differs = one != other
    if one.is_floating_point():
        differs &= ~(torch.isnan(one) & torch.isnan(other))
    return differs


def _only_padding(moved: Tensor, reading: Reading) -> bool:
    """Whether all that moved stands at padding, along some axis of positions, whichever way samples are laid out."""
    if not bool(moved.any()):
        return True
    return any(_stands_at_padding(view, batch, reading) for view, batch in _by_sample(moved, len(reading.keep)))


def _by_sample(tensor: Tensor, samples: int) -> Iterator[tuple[Tensor, int]]:
    """The tensor and its batch axis; an axis into which samples were folded is unfolded, both ways round."""
    yield from ((tensor, axis) for axis, size in enumerate(tensor.shape) if size == samples)
    for axis, size in enumerate(tensor.shape[:2]):
        if size > samples and size % samples == 0:
            yield tensor.unflatten(axis, (samples, size // samples)), axis
            yield tensor.unflatten(axis, (size // samples, samples)), axis + 1


def _stands_at_padding(moved: Tensor, batch: int, reading: Reading) -> bool:
    allowed = torch.zeros_like(moved)
    length = reading.keep.shape[1]
    others = [axis for axis in range(moved.dim()) if axis != batch]
    known = [axis for axis in others if moved.shape[axis] in reading.real]
    for axis in known or [a for a in others if 1 < moved.shape[a] < length]:
        size = moved.shape[axis]
        real = reading.real.get(size)
        if real is None:  # between two strides: as much of it is real as of the input
            counts = reading.keep.sum(1) * size // length
            real = torch.arange(size, device=moved.device) < counts[:, None]
        shape = [1] * moved.dim()
        shape[batch], shape[axis] = real.shape
        allowed |= ~(real if batch < axis else real.t()).reshape(shape)
    return not bool((moved & ~allowed).any())


def _first(
    before: Trace,
    after: Trace,
    watched: Callable[[Any], list[Tensor]],
    differs: Callable[[Tensor, Tensor], bool],
    lengths: Mapping[int, Any],
    pooled: bool,
) -> Entry | None:
    """The first operation on the way to the watched outputs that differs though none of its inputs does."""
    live = _leading_to(before, watched)
    stale = overwritten(before)
    reached: dict[int, bool] = {}
    twins = {one.index: other for one, other in paired(before, after)}
    for node in before.nodes:
        twin = twins.get(node.index)
        by_inputs = any(reached.get(ref.node, False) for ref in node.refs)
        if node.index in stale or twin is None or node.tensor is None or twin.tensor is None:
            reached[node.index] = by_inputs
            continue
        reached[node.index] = bool(node.taint & CONTENT) and differs(node.tensor, twin.tensor)
        if reached[node.index] and not by_inputs and node.index in live:
            return _entry(before, node, lengths, pooled)
    return None


def _leading_to(trace: Trace, watched: Callable[[Any], list[Tensor]]) -> set[int]:
    try:
        outputs = {id(tensor) for tensor in watched(trace.output)}
    except (KeyError, IndexError, AttributeError, TypeError):
        outputs = set()
    ends = [node for node in trace.nodes if id(node.tensor) in outputs]
    return ancestors(trace, ends, set()) if ends else set(range(len(trace.nodes)))


def _entry(trace: Trace, node: Node, lengths: Mapping[int, Any], pooled: bool) -> Entry:
    way, site = Way.OTHER, ""
    for path in score_paths(trace):
        if path.contraction.index <= node.index <= path.reader.index:
            way, site = Way.ATTENTION, path.softmax.key
    if way is Way.OTHER and pooled and _is_pooling(node, lengths):
        way = Way.POOLING
    op = base_name(node.op)
    return Entry(node.key, op, node.module, node.place, node.foreign, way, site, op in VIEWS)


def _is_pooling(node: Node, lengths: Mapping[int, Any]) -> bool:
    """Whether positions went in and none came out, or it weighs positions for what follows."""
    if node.op in SOFTMAXES:
        return True
    shape = node.tensor.shape if node.tensor is not None else ()
    went_in = any(size in lengths for ref in node.refs for size in ref.tensor.shape)
    return went_in and not any(size in lengths for size in shape) and base_name(node.op) not in STRIDED


# ---- amount ----------------------------------------------------------------------------------------------------


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
    return one.output is not None and other.output is not None and _change(one.output, other.output) <= ROUNDING


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
        (_change(v, twins[p]), True) for p, v in vectors(lab, one.raw) if p in twins and v.shape == twins[p].shape
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


def _change(one: Tensor, other: Tensor) -> float:
    """The largest difference relative to the largest number."""
    size = torch.nan_to_num(one.double().abs()).amax()
    return float(torch.nan_to_num(one.double() - other.double()).abs().amax() / size.clamp(min=1e-300))


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
    live, reached = _leading_to(before, watched), dict[int, bool]()
    stale = overwritten(before)
    length = padded.lengths[0]
    for node, twin in zip(before.nodes, after.nodes, strict=False):
        if node.key != twin.key:
            return None
        by_inputs = any(reached.get(ref.node, False) for ref in node.refs)
        if node.index in stale or node.tensor is None or twin.tensor is None or not node.taint & CONTENT:
            reached[node.index] = by_inputs
            continue
        far = _far(node.tensor, twin.tensor, padded)
        reached[node.index] = by_inputs if far is None else far > least
        if reached[node.index] and not by_inputs and node.index in live:
            return _entry(before, node, {length: None}, pooled)
    return None


def _far(alone: Tensor, padded: Tensor, situation: Situation) -> float | None:
    """The smallest difference that some way to cut the padding off leaves; None where none fits."""
    if not alone.is_floating_point():
        return None
    changes = [_change(a, b) for a, b in _cut(alone, padded, situation) if a.numel()]
    return min(changes) if changes else None


def _cut(alone: Tensor, padded: Tensor, situation: Situation) -> Iterator[tuple[Tensor, Tensor]]:
    if alone.dim() != padded.dim():
        return
    short, wide, samples = situation.lengths[0], situation.length, situation.batch
    if alone.dim() and alone.shape[0] == samples * short and padded.shape[0] == samples * wide:
        # positions folded into the first axis, samples slower or faster
        yield from _cut(alone.unflatten(0, (samples, short)), padded.unflatten(0, (samples, wide)), situation)
        yield from _cut(alone.unflatten(0, (short, samples)), padded.unflatten(0, (wide, samples)), situation)
        return
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
