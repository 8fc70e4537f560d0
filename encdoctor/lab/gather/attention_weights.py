"""Sums attention weights over the axis that the values are contracted over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from encdoctor.evidence.scores import AttentionWeights, PoolWeights, WeightRows
from encdoctor.lab.gather.scores import Way, back_to, book
from encdoctor.lab.lab import Lab
from encdoctor.lab.repair.chance import is_random
from encdoctor.lab.sites import CONTRACTIONS, SOFTMAXES, VIEWS, ScorePath, base_name, score_paths
from encdoctor.lab.trace import CONTENT, PARAMETER, Node, Ref, Trace

# Row sums farther from 1 than this are no rounding: exp/(sum + eps) and half precision stay within 1e-3.
OFF = 1e-2
PLAIN = {"mul", "div", "nan_to_num", "masked_fill", "where"}
# Behind these only a part of the weights goes on, or another sum of them.
SELECTIONS = {"slice", "select", "narrow", "cat", "where", "add", "mean", "unfold", "index_put"}


def gather_weights(lab: Lab) -> AttentionWeights:
    """Rows of the padded batch; what is off there is judged without padding, where masks hide nothing."""
    trace = lab.trace(replace(lab.padded, dtype=lab.dtype))
    sites, pools = _read(trace)
    if pools or any(abs(site.worst - 1) > OFF or site.twice for site in sites):
        trace = lab.trace(replace(lab.full, dtype=lab.dtype, masked=False))
        sites, pools = _read(trace)
    return AttentionWeights(sites, pools)


def _read(trace: Trace) -> tuple[tuple[WeightRows, ...], tuple[PoolWeights, ...]]:
    paths = list(score_paths(trace))
    return tuple(_rows(trace, path) for path in paths), tuple(_pools(trace, {p.softmax.index for p in paths}))


# ---- sites -----------------------------------------------------------------------------------------------------


def _rows(trace: Trace, path: ScorePath) -> WeightRows:
    between = list(back_to(trace, path.reader, path.softmax))
    weights, axis, other = _as_read(trace, path.reader, {path.softmax.index, *(node.index for node, _ in between)})
    between = [(node, carrier) for node, carrier in between if not _multiplies_values(path, node)]
    way, altered, twice, selected = Way([]), None, None, False
    for node, carrier in between:
        op = base_name(node.op)
        book(way, node, carrier)
        if op in SOFTMAXES:
            twice = node.place
        selected = selected or _selects(trace, node, carrier)
        if op not in VIEWS:
            altered = altered or node.place
    sums = weights.double().sum(axis)
    sums = sums[torch.isfinite(sums)]
    worst = float(sums[(sums - 1).abs().argmax()]) if sums.numel() else 1.0
    return WeightRows(
        key=path.softmax.key,
        module=path.softmax.module,
        place=path.softmax.place,
        foreign=path.softmax.foreign,
        typical=float(sums.median()) if sums.numel() else 1.0,
        worst=worst,
        axis=_own_axis(trace, path, weights, axis) if abs(worst - 1) > OFF else "",
        factor=way.factor,
        gated=way.learned or way.normalised or selected or _is_learned(other),
        twice=twice,
        altered=altered,
        other_axes=_other_axes(path.scores.tensor, path.dim),
    )


def _multiplies_values(path: ScorePath, node: Node) -> bool:
    """Whether this is the product of a contraction that is written out as a product and its sum."""
    return base_name(path.reader.op) == "sum" and node.index == path.reader.refs[0].node


def _selects(trace: Trace, node: Node, carrier: Ref) -> bool:
    """Whether a part of the weights goes on, something is added to them, or chance and constants thin them out."""
    op = base_name(node.op)
    if op in ("add", "native_dropout"):
        return True
    if op == "mul":
        others = [r for r in node.refs if r is not carrier and r.tensor.numel() > 1]
        return any(not r.taint & (CONTENT | PARAMETER) or is_random(trace, r) for r in others)
    return op in SELECTIONS and _tensor_size(node) != carrier.tensor.numel()


def _as_read(trace: Trace, reader: Node, reaches: set[int]) -> tuple[Tensor, int | list[int], Ref | None]:
    """(the weights as the values are multiplied with them, the axes that are summed over, the other operand)."""
    if base_name(reader.op) in CONTRACTIONS:
        left, right = reader.refs[-2:]
        return (left.tensor, -1, right) if left.node in reaches else (right.tensor, -2, left)
    product = reader.refs[0]
    while product.node not in reaches and base_name(trace.nodes[product.node].op) != "mul":
        product = trace.nodes[product.node].refs[0]
    node = trace.nodes[product.node]
    dims = reader.args[1] if len(reader.args) > 1 else [-1]
    axes = list(dims) if isinstance(dims, list | tuple) else [dims]
    if len(node.refs) < 2:
        return product.tensor, axes, None
    # the product itself was reached from the softmax: of its operands, the weights are the one that leads back there
    weights = next((r for r in node.refs if r.node in reaches), node.refs[0])
    other = next((r for r in node.refs if r is not weights), None)
    return weights.tensor.expand(product.tensor.shape), axes, other


def _own_axis(trace: Trace, path: ScorePath, weights: Tensor, axis: int | list[int]) -> str:
    """Names the axis over which the softmax runs, where it is not the keys'."""
    if isinstance(axis, int):
        free = weights.double().sum(-2 if axis == -1 else -1)
        if bool(((free - 1).abs() < OFF).all()):
            return "queries"
    assert trace.keep is not None
    size = path.scores.tensor.shape[path.dim]
    if path.dim == 0 and size == trace.keep.shape[0]:
        return "samples"
    return "queries" if size == trace.keep.shape[1] else f"scores' axis {path.dim}"


def _other_axes(scores: Tensor, dim: int) -> tuple[int, ...]:
    """All axes but the softmax's own and the samples', the last first."""
    return tuple(i for i in reversed(range(1, scores.dim())) if i != dim and scores.shape[i] > 1)


def _is_learned(other: Ref | None) -> bool:
    return other is not None and bool(other.taint & PARAMETER) and not other.taint & CONTENT


def _tensor_size(node: Node) -> int:
    return node.tensor.numel() if node.tensor is not None else 0


# ---- pools -----------------------------------------------------------------------------------------------------


def _pools(trace: Trace, sites: set[int]) -> Iterator[PoolWeights]:
    """Softmaxes over one element or over the batch, whose weights then sum over positions."""
    assert trace.keep is not None
    batch, length = trace.keep.shape
    users = trace.users()
    for node in trace.nodes:
        if node.op not in SOFTMAXES or node.index in sites or not node.taint & CONTENT:
            continue
        scores = node.args[0].tensor
        dim = node.args[1] % scores.dim()
        size = scores.shape[dim]
        over_batch = dim == 0 and size == batch
        if length not in scores.shape or not (size == 1 or over_batch):
            continue
        total = _summed_over_positions(trace, users, node, length)
        if total is not None and abs(total - 1) > OFF:
            axis = "the batch" if over_batch else "an axis of length 1"
            others = tuple(i for i in range(scores.dim()) if scores.shape[i] == length)
            yield PoolWeights(node.key, node.place, node.foreign, size, axis, total, others)


def _summed_over_positions(trace: Trace, users: dict[int, list[Node]], node: Node, length: int) -> float | None:
    """What the weights sum to where they are multiplied with a sequence and summed over it; None where they are not."""
    reaches, todo = {node.index}, [node]
    while todo:
        current = todo.pop()
        for user in users.get(current.index, []):
            op = base_name(user.op)
            if op in CONTRACTIONS or (op in ("sum", "mean") and base_name(current.op) == "mul"):
                weights, axis, other = _as_read(trace, user, reaches)
                axes = [axis] if isinstance(axis, int) else axis
                if len(axes) == 1 and weights.shape[axes[0]] == length and other is not None and other.taint & CONTENT:
                    return float(weights.double().sum(axes[0]).median())
            elif op in VIEWS | PLAIN and user.index not in reaches and len(reaches) < 12:
                reaches.add(user.index)
                todo.append(user)
    return None

