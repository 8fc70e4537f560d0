"""Finds the operation through which padding gets in, by comparing two recordings that differ in padding alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from encdoctor.evidence.influence import PaddingInfluence
from encdoctor.evidence.leaks import Entry, PaddingEntry, Way
from encdoctor.lab.compare import ancestors, overwritten, paired
from encdoctor.lab.gather.influence import padding_runs, with_other_padding
from encdoctor.lab.lab import Lab
from encdoctor.lab.layout import Reading, read_positions
from encdoctor.lab.outputs import pick
from encdoctor.lab.sites import SOFTMAXES, VIEWS, base_name, score_paths
from encdoctor.lab.situations import Situation
from encdoctor.lab.trace import CONTENT, Node, Trace

# They shorten the sequence and leave positions; what else shortens it away is pooling.
STRIDED = {"convolution", "avg_pool1d", "avg_pool2d", "max_pool1d_with_indices", "max_pool2d_with_indices", "unfold"}


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
                found.append((change_between(vector, twin), path))
    return max(found)


def vectors(lab: Lab, raw: Any) -> Iterator[tuple[str, Tensor]]:
    """Float tensors (B, F) in what forward returned, with their paths; one number for each position is no vector."""
    for path, tensor in _tensors(raw, ""):
        if tensor.dim() != 2 or not tensor.is_floating_point():
            continue
        if tensor.shape[0] == lab.padded.batch and tensor.shape[1] != lab.padded.length:
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


def change_between(one: Tensor, other: Tensor) -> float:
    """The largest difference relative to the largest number."""
    size = torch.nan_to_num(one.double().abs()).amax()
    return float(torch.nan_to_num(one.double() - other.double()).abs().amax() / size.clamp(min=1e-300))


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
    live = leading_to(before, watched)
    stale = overwritten(before)
    reached: dict[int, bool] = {}
    twins = {one.index: other for one, other in paired(before, after)}
    for node in before.nodes:
        twin = twins.get(node.index)
        by_inputs = any(reached.get(ref.node, False) for ref in node.refs)
        if node.index in stale or twin is None or node.tensor is None or twin.tensor is None:
            reached[node.index] = by_inputs
            continue
        if base_name(node.op) in VIEWS and not any(size in lengths for size in node.tensor.shape):
            reached[node.index] = by_inputs  # positions folded away: it moves numbers, and where to cannot be told
            continue
        reached[node.index] = bool(node.taint & CONTENT) and differs(node.tensor, twin.tensor)
        if reached[node.index] and not by_inputs and node.index in live:
            return entry_at(before, node, lengths, pooled)
    return None


def leading_to(trace: Trace, watched: Callable[[Any], list[Tensor]]) -> set[int]:
    try:
        outputs = {id(tensor) for tensor in watched(trace.output)}
    except (KeyError, IndexError, AttributeError, TypeError):
        outputs = set()
    ends = [node for node in trace.nodes if id(node.tensor) in outputs]
    return ancestors(trace, ends, set()) if ends else set(range(len(trace.nodes)))


def entry_at(trace: Trace, node: Node, lengths: Mapping[int, Any], pooled: bool) -> Entry:
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
