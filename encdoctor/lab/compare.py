"""Compares two recordings of the same path, operation by operation: whose content reached what."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from encdoctor.lab.sites import base_name
from encdoctor.lab.trace import Node, Trace


def paired(before: Trace, after: Trace) -> Iterator[tuple[Node, Node]]:
    """Operations that stand in both, as long as both take the same path; those overwritten later are left out."""
    stale = overwritten(before)
    for one, other in zip(before.nodes, after.nodes, strict=False):
        if one.key != other.key:
            return
        left, right = one.tensor, other.tensor
        if one.index not in stale and left is not None and right is not None and left.shape == right.shape:
            yield one, other


def overwritten(trace: Trace) -> set[int]:
    """Indices of operations whose output was changed in place afterwards: what is kept is not what they made."""
    stale: set[int] = set()
    made: dict[int, list[int]] = {}
    for node in trace.nodes:
        tensor = node.tensor
        if tensor is None or tensor.is_sparse or tensor.is_nested:
            continue
        at = tensor.untyped_storage().data_ptr()
        writes = node.op != base_name(node.op) or node.op in ("copy_", "fill_", "index_put_")
        if writes:
            stale.update(made.pop(at, []))
        made.setdefault(at, []).append(node.index)
    return stale


def axis_of(tensor: Tensor, size: int) -> int | None:
    """The only axis of that size; None where there is none or where several could be meant."""
    axes = [axis for axis, n in enumerate(tensor.shape) if n == size]
    return axes[0] if len(axes) == 1 else None


def moved(before: Tensor, after: Tensor, axis: int) -> Tensor:
    """Indices along `axis` at which anything differs."""
    differs = before != after
    if before.is_floating_point() or before.is_complex():
        differs &= ~(torch.isnan(before) & torch.isnan(after))
    others = [a for a in range(before.dim()) if a != axis]
    return (differs.any(others) if others else differs).nonzero().flatten()


def change_outside(before: Tensor, after: Tensor, axis: int, allowed: set[int]) -> float:
    """The largest difference at other indices along `axis` than those allowed, relative to the largest number."""
    outside = [i for i in range(before.shape[axis]) if i not in allowed]
    index = torch.tensor(outside, device=before.device)
    difference = (before.double() - after.double()).abs().index_select(axis, index)
    size = torch.nan_to_num(before.double().abs()).amax()
    return float(torch.nan_to_num(difference).amax() / size.clamp(min=1e-300)) if outside else 0.0


def ancestors(trace: Trace, starts: list[Node], stop: set[int]) -> set[int]:
    """Indices of the operations that lead to `starts`, not going through those in `stop`."""
    seen: set[int] = set()
    open_ = [node.index for node in starts]
    while open_:
        index = open_.pop()
        if index in seen or index in stop or index < 0:
            continue
        seen.add(index)
        open_.extend(ref.node for ref in trace.nodes[index].refs)
    return seen
