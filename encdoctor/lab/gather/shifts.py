"""Moves a sentence behind left padding, and reads fixed biases by distance."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from encdoctor.contract import InputKind
from encdoctor.evidence.shifts import DistanceBias, LeftPadding
from encdoctor.intent import What
from encdoctor.lab.batches import keep_mask, make_call
from encdoctor.lab.lab import Lab
from encdoctor.lab.sites import base_name, score_paths
from encdoctor.lab.trace import CONTENT, MASK, PARAMETER, Node, Ref, Trace
from encdoctor.model import Place


def gather_left_padding(lab: Lab) -> LeftPadding:
    """One batch with padding on the right, and the same sentences behind padding on the left."""
    contract = lab.contract
    if contract.mask is None or not contract.has_sequence or contract.input is InputKind.AUDIO:
        return LeftPadding(False, "the encoder is not told what is padding")
    if not lab.intent.says(What.LEFT_PADDING):
        return LeftPadding(False, "left padding is not declared; every encoder with absolute positions moves under it")
    right = replace(lab.padded, dtype=lab.dtype)
    left = replace(right, side="left")
    base = lab.run(right).tensor
    if contract.pooled or base.shape[1] != right.length:
        return LeftPadding(False, "outputs do not correspond to positions")
    call, source = make_call(contract, left, lab.device), make_call(contract, right, lab.device)
    batch, axis = contract.shape.index("B"), contract.shape.index("S")
    for sample, count in enumerate(right.lengths):
        into = call.content.select(batch, sample)
        along = axis - (batch < axis)
        into.narrow(along, right.length - count, count).copy_(
            source.content.select(batch, sample).narrow(along, 0, count)
        )
    with torch.no_grad():
        other = lab.forward(lab.copy_of(left.dtype), left, call).tensor
    one, moved = base[keep_mask(right)], other[keep_mask(left)]
    change = float((one - moved).abs().amax() / one.abs().amax())
    return LeftPadding(True, change=change, added=_added(lab))


def _added(lab: Lab) -> tuple[Place, ...]:
    from encdoctor.evidence.positions import PositionPart

    part = lab.get(PositionPart)
    return (part.added, *part.made) if part.found else ()


def gather_bias(lab: Lab) -> DistanceBias:
    """The first fixed bias that scores get and that depends on the distance alone."""
    if not lab.contract.has_sequence:
        return DistanceBias(False, "the input has no sequence axis")
    trace = lab.trace(replace(lab.full, dtype=lab.dtype))
    length = lab.full.length
    for path in score_paths(trace):
        for node, carrier in path.steps:
            bias = _fixed(node, carrier, length)
            profile = None if bias is None else _by_distance(bias.tensor, length)
            if bias is not None and profile is not None:
                places = _everywhere(trace, _makers(trace, bias), node)
                return DistanceBias(True, before=profile[0], after=profile[1], keys=_keys(trace, node), places=places)
    return DistanceBias(False, "no fixed bias by distance is added to the scores")


def _fixed(node: Node, carrier: Ref, length: int) -> Ref | None:
    """What a step adds to the scores, where it is neither content, mask nor learned."""
    if base_name(node.op) != "add":
        return None
    others = [r for r in node.refs if r.tensor is not carrier.tensor and not r.taint & (CONTENT | MASK | PARAMETER)]
    square = [r for r in others if r.tensor.dim() >= 2 and r.tensor.shape[-2:] == (length, length)]
    return square[0] if square else None


def _by_distance(bias: Tensor, length: int) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """(bias of 0, 1, 2 … positions back, and ahead) of the steepest head; None where it is no function of distance."""
    heads = bias.double().reshape(-1, length, length)
    if not bool(torch.isfinite(heads).all()) or float(heads.abs().amax()) > 1e3:
        return None
    if not torch.allclose(heads[:, 1:, 1:], heads[:, :-1, :-1], atol=1e-6):
        return None
    head = heads[heads.flatten(1).std(1).argmax()]
    return tuple(head[-1].flip(0).tolist()), tuple(head[0].tolist())


def _makers(trace: Trace, ref: Ref) -> list[Place]:
    places = []
    while ref.node >= 0:
        node = trace.nodes[ref.node]
        places.append(node.place)
        if not node.refs:
            break
        ref = max(node.refs, key=lambda r: r.tensor.numel())
    return places


def _everywhere(trace: Trace, makers: list[Place], node: Node) -> tuple[Place, ...]:
    return tuple(dict.fromkeys((*(place for place in makers if place.line), node.place)))


def _keys(trace: Trace, node: Node) -> tuple[str, ...]:
    return tuple(n.key for n in trace.nodes if n.op == node.op and n.place.line == node.place.line)
