"""Finds the position that a pooled output is read from, by matching rows: what was taken equals what it came from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from encdoctor.contract import MaskMeaning
from encdoctor.evidence.pooling import Picked, TokenPooling
from encdoctor.lab.lab import Lab
from encdoctor.lab.stream import tensors
from encdoctor.lab.trace import CONTENT, Edit, Node, Operation, Trace

PICKS = {"select", "index", "gather", "slice"}
# How many operations lie at most between the pick and an output: a head, an activation, a norm.
BEHIND = 40


def gather_pooling(lab: Lab) -> TokenPooling:
    """Runs with padding on the right and on the left; both are recorded anyway or cheap."""
    mask = lab.contract.mask
    if not lab.contract.has_sequence or mask is None:
        return TokenPooling(why="nothing tells the encoder what is padding")
    right = replace(lab.padded, dtype=lab.dtype)
    found = {n.key: (n, at) for n, at in _picks(lab, lab.trace(right))}
    if not found:
        return TokenPooling()
    left_found: dict[str, tuple[Node, tuple[int, ...]]] = {}
    if mask.true is not MaskMeaning.LENGTHS:
        left_found = {n.key: (n, at) for n, at in _picks(lab, lab.trace(replace(right, side="left")))}
    return TokenPooling(tuple(_picked(lab, node, at, left_found.get(key)) for key, (node, at) in found.items()))


def _picked(lab: Lab, node: Node, right: tuple[int, ...], other: tuple[Node, tuple[int, ...]] | None) -> Picked:
    lengths, length = lab.padded.lengths, lab.padded.length
    extra = _extra(node, length)
    right_real = all(p < extra + n for p, n in zip(right, lengths, strict=True))
    left = None if other is None else other[1]
    left_real = left is None or all(
        p < extra or p >= extra + length - n for p, n in zip(left, lengths, strict=True)
    )
    counted = len(set(right)) > 1
    return Picked(node.key, node.place, right, right_real, left, left_real, counted)


def _extra(node: Node, length: int) -> int:
    """Tokens that the model puts in front of its own accord."""
    return max(0, max(node.refs[0].tensor.shape[:2]) - length)


def _picks(lab: Lab, trace: Trace) -> Iterator[tuple[Node, tuple[int, ...]]]:
    outputs = {id(t) for t in tensors(trace.output)}
    behind = {n.index: 0 for n in trace.nodes if any(id(t) in outputs for t in tensors(n.output))}
    for node in reversed(trace.nodes):
        if node.index not in behind:
            continue
        positions = _positions(lab, node) if node.op in PICKS and node.taint & CONTENT else None
        if positions is not None:
            yield node, positions
            continue  # what lies before it is no pooling
        if behind[node.index] < BEHIND:
            for ref in node.refs:
                behind[ref.node] = min(behind.get(ref.node, BEHIND), behind[node.index] + 1)


def _positions(lab: Lab, node: Node) -> tuple[int, ...] | None:
    """The position taken in each sample, where it is one; equal rows of padding are as good as each other."""
    before, after = node.refs[0].tensor, node.tensor
    samples, length = lab.padded.batch, lab.padded.length
    if after is None or before.dim() != 3 or after.numel() != samples * before.shape[-1]:
        return None
    if before.shape[0] == samples and before.shape[1] >= length:
        rows = before
    elif before.shape[1] == samples and before.shape[0] >= length:
        rows = before.transpose(0, 1)
    else:
        return None
    taken = after.reshape(samples, 1, -1)
    same = (rows == taken).all(-1)
    if not bool(same.any(1).all()):
        return None
    return tuple(int(p) for p in same.int().argmax(1))


def take_real(last: bool) -> Edit:
    """The last, or first, real position of each sample in place of what was taken."""

    def edit(op: Operation) -> Tensor:
        before: Tensor = op.args[0]
        keep = op.keep
        rows = before if before.shape[0] == len(keep) else before.transpose(0, 1)
        places = torch.arange(keep.shape[1], device=keep.device)
        at = torch.where(keep, places, -1).argmax(1) if last else keep.int().argmax(1)
        at = at + rows.shape[1] - keep.shape[1]
        return rows[torch.arange(len(keep), device=keep.device), at].reshape(op.output.shape)

    return edit
