"""Repeats one token and looks whether q·k depends on the distance alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from encdoctor.evidence.rotary import Rotary
from encdoctor.lab.batches import make_call
from encdoctor.lab.compare import axis_of
from encdoctor.lab.gather.scores import operands
from encdoctor.lab.lab import Lab
from encdoctor.lab.sites import base_name, score_paths
from encdoctor.lab.trace import CONTENT, Node, Ref, Trace
from encdoctor.model import Place

# What float32 tables may do to equal rows in float64, relative.
EQUAL = 1e-5
# Behind these, positions are part of the content.
MIXED = {"mm", "addmm", "bmm", "baddbmm", "native_layer_norm", "_softmax", "_safe_softmax", "embedding", "convolution"}


# Steps between the negation and the multiplication: stack, flatten, cat.
NEAR = 6


@dataclass(frozen=True)
class _Turn:
    """The operations between where all positions are still alike and the product."""

    varies: bool
    nodes: tuple[Node, ...] = ()
    start: Ref | None = None


def gather_rotary(lab: Lab) -> Rotary:
    """One recording of a batch whose sentences repeat their first token."""
    if not lab.contract.has_sequence:
        return Rotary(False, "the input has no sequence axis")
    situation = replace(lab.full, dtype=lab.dtype)
    call = make_call(lab.contract, situation, lab.device)
    axis = lab.contract.shape.index("S")
    call.content.copy_(call.content.narrow(axis, 0, 1).clone().expand_as(call.content))
    trace = lab.record(situation, call)
    path = next(score_paths(trace), None)
    if path is None:
        return Rotary(False, "no attention was seen")
    length = situation.length
    q, k = operands(trace, path.contraction)
    read = [r for r in path.reader.refs[-2:] if r.taint & CONTENT]
    value = next((r for r in read if axis_of(r.tensor, length) is not None), None)
    turns = [_turn(trace, ref, length) for ref in (q, k)]
    if not any(turn is not None and turn.varies and turn.nodes for turn in turns):
        return Rotary(False, "positions do not enter between the projections and the product")
    if any(turn is None for turn in turns):
        return Rotary(False, "how positions enter q or k was not recognised")
    scores = path.contraction.tensor
    if scores is None or sum(n == length for n in scores.shape) != 2:
        return Rotary(False, "the products are not square")
    turned_q, turned_k = (turn for turn in turns if turn is not None)
    turned_v = _turn(trace, value, length) if value is not None else None
    nodes = (*turned_q.nodes, *turned_k.nodes)
    negated = _negated(trace, nodes, length)
    return Rotary(
        True,
        queries=turned_q.varies,
        keys=turned_k.varies,
        values=turned_v is not None and turned_v.varies and bool(turned_v.nodes),
        deviation=_deviation(scores, length),
        stretch=max(_stretch(ref.tensor, length) for ref in (q, k)),
        values_change=_variation(value.tensor, length) if value is not None else 0.0,
        tables=_tables(nodes, length),
        turns=_turns(negated),
        turned_at=_everywhere(trace, negated),
        multiplied_at=_everywhere(trace, [n for n in nodes if _by_position(n, length)]),
        scores_at=_everywhere(trace, [path.contraction]),
    )


def _turn(trace: Trace, ref: Ref, length: int) -> _Turn | None:
    """Back from q or k to where all positions are still alike; None where they never are."""
    if axis_of(ref.tensor, length) is None:
        return None
    if _variation(ref.tensor, length) <= EQUAL:
        return _Turn(False)
    seen: dict[int, Node] = {}
    open_ = [ref]
    start: Ref | None = None
    while open_:
        current = open_.pop()
        if current.node < 0 or current.node in seen or not current.taint & CONTENT:
            continue
        node = trace.nodes[current.node]
        if axis_of(current.tensor, length) is not None and _variation(current.tensor, length) <= EQUAL:
            start = current
            continue
        if base_name(node.op) in MIXED:
            return None
        seen[node.index] = node
        open_.extend(node.refs)
    by_product = any(_by_position(node, length) for node in seen.values())
    return _Turn(True, tuple(seen.values()), start) if by_product else None


def _by_position(node: Node, length: int) -> bool:
    """A multiplication by something that varies along the positions and not with the tokens."""
    return base_name(node.op) in ("mul", "addcmul") and any(
        not r.taint & CONTENT and r.tensor.dim() >= 2 and axis_of(r.tensor, length) is not None for r in node.refs
    )


def _rows(tensor: Tensor, length: int) -> Tensor:
    axis = axis_of(tensor, length)
    assert axis is not None
    wide = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return wide.double().movedim(axis, 0)


def _variation(tensor: Tensor, length: int) -> float:
    rows = _rows(tensor, length)
    return float((rows - rows[:1]).abs().amax() / rows.abs().amax().clamp(min=1e-300))


def _stretch(tensor: Tensor, length: int) -> float:
    """How far lengths differ between positions; heads and samples stay apart."""
    rows = _rows(tensor, length)
    lengths = rows.flatten(2).norm(dim=-1) if rows.dim() > 2 else rows.norm(dim=-1, keepdim=True)
    return float(((lengths - lengths[:1]).abs() / lengths[:1].clamp(min=1e-300)).amax())


def _deviation(scores: Tensor, length: int) -> float:
    axes = [axis for axis, n in enumerate(scores.shape) if n == length]
    square = scores.double().movedim(axes, (-2, -1))
    return float((square[..., 1:, 1:] - square[..., :-1, :-1]).abs().amax() / square.abs().amax().clamp(min=1e-300))


def _tables(nodes: tuple[Node, ...], length: int) -> str:
    """How angles are laid out over the features."""
    for node in nodes:
        for ref in node.refs:
            if ref.taint & CONTENT or ref.tensor.dim() < 2 or axis_of(ref.tensor, length) is None:
                continue
            table, width = ref.tensor, ref.tensor.shape[-1]
            if width < 4 or width % 2 or table.is_complex():
                continue
            if torch.equal(table[..., : width // 2], table[..., width // 2 :]):
                return "halves"
            if torch.equal(table[..., 0::2], table[..., 1::2]):
                return "pairs"
    return ""


def _negated(trace: Trace, nodes: tuple[Node, ...], length: int) -> list[Node]:
    """What is negated on the way into a multiplication by the angles."""
    found: dict[int, Node] = {}
    open_ = [(r, 0) for n in nodes if _by_position(n, length) for r in n.refs if r.taint & CONTENT]
    while open_:
        ref, steps = open_.pop()
        if ref.node < 0 or steps > NEAR or not ref.taint & CONTENT:
            continue
        node = trace.nodes[ref.node]
        if base_name(node.op) == "neg":
            found[node.index] = node
        elif base_name(node.op) not in MIXED:
            open_ += [(r, steps + 1) for r in node.refs]
    return list(found.values())


def _turns(negated: list[Node]) -> str:
    """Which features are turned together: what is negated was cut out by a stride, or as a half."""
    for node in negated:
        return "pairs" if node.refs[0].tensor.stride(-1) == 2 else "halves"
    return ""


def _everywhere(trace: Trace, nodes: list[Node]) -> tuple[Place, ...]:
    """The lines of these operations, in every layer that has them."""
    lines = {(n.place.file, n.place.line, n.op) for n in nodes}
    same = (n.place for n in trace.nodes if (n.place.file, n.place.line, n.op) in lines)
    return tuple(dict.fromkeys(same))
