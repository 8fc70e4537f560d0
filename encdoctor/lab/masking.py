"""Reads masks off a trace: which scores an operation hides, and what pattern that is, head by head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from encdoctor.evidence.attention import Covers, MaskAt
from encdoctor.lab.layout import Layout, Reading, arrange
from encdoctor.lab.sites import VIEWS, WEIGHT_STEPS, base_name
from encdoctor.lab.trace import CONTENT, MASK, PARAMETER, Node, Ref, Trace

LAYING_OUT = {"unsqueeze", "transpose", "permute", "view", "t", "reshape"}
# An additive mask hides where it lies this far below its maximum: e^-1 is no mask, a position bias stays above it
# only when it comes from the mask argument; constants must reach the second figure.
ADDED_FROM_MASK, ADDED_CONSTANT = 1e-12, 1e3
# How far a mask may have slipped along the keys and still be known for the padding's.
FARTHEST_SLIP = 3


@dataclass(frozen=True)
class Hiding:
    """A mask and the scores that it hides, as (B, H, Q, K), None where they have no such form."""

    mask: MaskAt
    pattern: Tensor | None


def masks_before(trace: Trace, steps: tuple[tuple[Node, Ref], ...], reading: Reading, layout: Layout) -> list[Hiding]:
    """Masks on the way from the scores to the softmax."""
    read = (_read_mask(trace, node, ref, reading, layout) for node, ref in steps)
    return [hiding for hiding in read if hiding is not None]


def masks_after(
    trace: Trace, softmax: Node, users: dict[int, list[Node]], reading: Reading, layout: Layout
) -> Iterator[Hiding]:
    """Masks applied to the weights, after the softmax, also through views."""
    for user in users.get(softmax.index, []):
        if base_name(user.op) not in WEIGHT_STEPS:
            continue
        ref = next(r for r in user.refs if r.node == softmax.index)
        hiding = _read_mask(trace, user, ref, reading, layout)
        if hiding is not None:
            yield hiding
        elif base_name(user.op) in VIEWS and user.tensor is not None and user.tensor.shape == ref.tensor.shape:
            yield from masks_after(trace, user, users, reading, layout)


def hidden_together(hidings: list[Hiding]) -> Tensor | None:
    """What all masks of a site hide between them, None where one of them cannot be read."""
    together: Tensor | None = None
    for hiding in hidings:
        if hiding.pattern is None:
            return None
        together = hiding.pattern if together is None else together | hiding.pattern
    return together


def _read_mask(trace: Trace, node: Node, score: Ref, reading: Reading, layout: Layout) -> Hiding | None:
    """The mask that one step on the way to the softmax applies, or None."""
    read = _hidden(node, score)
    if read is None:
        return None
    hidden, fill, how, other = read
    out = node.tensor
    assert out is not None
    grows = score.tensor.dim() < out.dim() or (score.node >= 0 and out.numel() > score.tensor.numel())
    pattern = _pattern(hidden, out, layout)
    covers, offset = name_pattern(pattern, reading) if pattern is not None else (Covers.OTHER, 0)
    from_mask = bool(other.taint & MASK) and not other.taint & PARAMETER
    if covers is Covers.NOTHING and not from_mask:
        return None
    rank = _rank_before_expand(trace, other)
    made = _history(trace, other)
    mask = MaskAt(
        key=node.key,
        place=node.place,
        how=how,
        covers=covers,
        fill=fill,
        from_mask=from_mask,
        rank=rank,
        score_rank=score.tensor.dim(),
        offset=offset,
        grows=grows,
        history=tuple(dict.fromkeys(n.place for n in made)),
        shaped=next((n.place for n in made if base_name(n.op) in LAYING_OUT), None),
        hides_self=pattern is not None and _hides_self(pattern, reading),
    )
    return Hiding(mask, pattern)


def _pattern(hidden: Tensor, scores: Tensor, layout: Layout) -> Tensor | None:
    try:
        return arrange(hidden.expand(scores.shape), layout)
    except RuntimeError:
        return None


def _hides_self(pattern: Tensor, reading: Reading) -> bool:
    queries = reading.real_keys(pattern)
    if pattern.shape[2] != pattern.shape[3] or queries is None:
        return False
    own = torch.diagonal(pattern, dim1=2, dim2=3)
    real = queries[:, None].expand(own.shape)
    return bool(own[real].all()) and not bool(pattern.all(3)[real].all())


def _history(trace: Trace, ref: Ref, steps: int = 12) -> list[Node]:
    """The operations that made a mask out of the caller's mask or the ids, the latest first."""
    made: list[Node] = []
    while ref.node >= 0 and len(made) < steps:
        node = trace.nodes[ref.node]
        made.append(node)
        if not node.refs:
            break
        ref = max(node.refs, key=lambda r: (bool(r.taint & MASK), r.node))
    return [node for node in made if node.place.line]


def _hidden(node: Node, score: Ref) -> tuple[Tensor, float, str, Ref] | None:
    """(which scores are hidden, fill value, how, the mask's operand) of one operation, None if it is no mask."""
    op = base_name(node.op)
    others = [r for r in node.refs if r.tensor is not score.tensor]
    if op in ("masked_fill", "masked_scatter") and others:
        mask = next((r for r in others if r.tensor.dtype is torch.bool), None)
        value = node.args[2] if len(node.args) > 2 else node.kwargs.get("value", 0.0)
        return None if mask is None else (mask.tensor, _number(value), "fill", mask)
    if op == "where" and len(node.refs) >= 2:
        condition = node.refs[0]
        chosen = node.args[1]
        score_first = isinstance(chosen, Ref) and chosen.tensor is score.tensor
        value = node.args[2] if score_first else node.args[1]
        return (~condition.tensor if score_first else condition.tensor, _number(value), "fill", condition)
    if op == "baddbmm":
        return _added(node.refs[0], 1.0)
    if op in ("add", "sub") and others:
        return _added(others[0], -1.0 if op == "sub" else 1.0)
    if op == "mul" and others and others[0].taint & MASK and not others[0].taint & PARAMETER:
        other = others[0]
        return (other.tensor == 0, 0.0, "multiply", other)
    return None


def _added(other: Ref, sign: float) -> tuple[Tensor, float, str, Ref] | None:
    value = other.tensor * sign
    if not value.is_floating_point():
        value = value.double()
    top = value.amax() if value.numel() else value.new_zeros(())
    from_mask = other.taint & MASK and not other.taint & PARAMETER
    if not from_mask and other.taint & (CONTENT | PARAMETER):
        return None
    hidden = value < top - (ADDED_FROM_MASK if from_mask else ADDED_CONSTANT)
    fill = float(value.amin()) if value.numel() else 0.0
    return hidden, fill, "add", other


def _number(value: Any) -> float:
    if isinstance(value, Ref):
        flat = value.tensor.reshape(-1)
        return float(flat.amin()) if flat.numel() else 0.0
    return float(value)


def name_pattern(pattern: Tensor, reading: Reading) -> tuple[Covers, int]:
    """Names what a (B, H, Q, K) pattern hides from real queries, and by how much it is off."""
    if not bool(pattern.any()):
        return Covers.NOTHING, 0
    real, square = reading.real_keys(pattern), pattern.shape[2] == pattern.shape[3]
    if real is None:
        return _triangle(pattern) if square else (Covers.OTHER, 0)
    if bool(pattern.all()):
        return Covers.ALL, 0
    queries = reading.real.get(pattern.shape[2])
    queries = torch.ones_like(real[:, :1]).expand(-1, pattern.shape[2]) if queries is None else queries
    pad, on_real = ~real[:, None, None, :], queries[:, None, :, None]

    def same(expected: Tensor) -> bool:
        return bool(((pattern == expected) | ~on_real).all())

    if same(pad):
        return Covers.PADDED_KEYS, 0
    if same(~pad):
        return Covers.REAL_KEYS, 0
    if square and bool((pattern == ~queries[:, None, :, None]).all()):
        return Covers.PADDED_ROWS, 0
    if square:
        triangle, offset = _triangle(pattern)
        if triangle is not Covers.OTHER:
            return triangle, offset
        for offset in range(-2, 3):
            later = torch.ones_like(pattern[0, 0]).triu(offset)
            if same(pad | later):
                return Covers.FUTURE, offset
        for width in range(1, pattern.shape[3] - 1):
            if same(
                pad | torch.ones_like(pattern[0, 0]).triu(width + 1) | torch.ones_like(pattern[0, 0]).tril(-width - 1)
            ):
                return Covers.BAND, width
    return _displaced(pattern, real, queries)


def _displaced(pattern: Tensor, real: Tensor, queries: Tensor) -> tuple[Covers, int]:
    """The padding of another sample, or a sample's own padding beside its place."""
    rows = [[_of_real_queries(head, keep) for head in sample] for sample, keep in zip(pattern, queries, strict=True)]
    known = {tuple(row.tolist()) for row in ~real}
    by_sample: list[Tensor] = []
    strays = 0
    for sample in rows:
        first = sample[0]
        if first is None or any(row is None or tuple(row.tolist()) not in known for row in sample):
            strays += 1
        if first is None or any(row is None or not torch.equal(row, first) for row in sample):
            continue
        by_sample.append(first)
    if not strays:
        return Covers.OTHER_SAMPLE, 0
    if len(by_sample) < len(rows):
        return Covers.OTHER, 0
    slips = [_slip(row, ~keep) for row, keep in zip(by_sample, real, strict=True)]
    known_slips = [slip for slip in slips if slip is not None]
    if len(known_slips) < len(slips) or not any(known_slips):
        return Covers.OTHER, 0
    return Covers.SHIFTED, max(known_slips, key=abs)


def _of_real_queries(pattern: Tensor, queries: Tensor) -> Tensor | None:
    """The row (K,) that all real queries of one head share, None where they differ."""
    rows = pattern[queries]
    return rows[0] if len(rows) and bool((rows == rows[0]).all()) else None


def _slip(row: Tensor, pad: Tensor) -> int | None:
    """By how many keys a row of hidden keys lies behind the padding; None where it is no shifted padding."""
    for slip in sorted(range(-FARTHEST_SLIP, FARTHEST_SLIP + 1), key=abs):
        there, here = (row[slip:], pad[: len(pad) - slip]) if slip > 0 else (row[: len(row) + slip], pad[-slip:])
        if torch.equal(there, here):
            return slip
    return None


def _triangle(pattern: Tensor) -> tuple[Covers, int]:
    """Causal, reversed, banded or diagonal patterns that are the same for every sample and head."""
    first = pattern[0, 0]
    if not bool((pattern == first).all()):
        return Covers.OTHER, 0
    ones = torch.ones_like(first)
    for offset in range(-3, 4):
        if torch.equal(first, ones.triu(offset)):
            return Covers.FUTURE, offset
        if torch.equal(first, ones.tril(offset)):
            return Covers.PAST, offset
    if torch.equal(first, torch.eye(len(first), dtype=torch.bool, device=first.device)):
        return Covers.DIAGONAL, 0
    for width in range(1, len(first) - 1):
        if torch.equal(first, ones.triu(width + 1) | ones.tril(-width - 1)):
            return Covers.BAND, width
    return Covers.OTHER, 0


def _rank_before_expand(trace: Trace, ref: Ref) -> int:
    while ref.node >= 0 and base_name(trace.nodes[ref.node].op) == "expand":
        ref = trace.nodes[ref.node].refs[0]
    return ref.tensor.dim()
