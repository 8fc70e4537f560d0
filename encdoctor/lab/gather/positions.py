"""Finds what is added to token vectors for their positions, and the table it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from encdoctor.evidence.positions import PositionPart
from encdoctor.lab.compare import axis_of
from encdoctor.lab.lab import Lab
from encdoctor.lab.lines import wave_lines
from encdoctor.lab.sites import VIEWS, base_name
from encdoctor.lab.source import attribute_line
from encdoctor.lab.trace import CONTENT, PARAMETER, Node, Ref, Trace

LOOKUPS = {"embedding", "index", "index_select", "gather"}
# What may stand between a table and the sum without making other positions of it.
PASSED_BY = VIEWS | {"mul", "div", "native_dropout", "add", "cat", "where", "masked_fill"}
CONTRACTIONS = {"bmm", "_softmax", "_safe_softmax"}


def gather_positions(lab: Lab) -> PositionPart:
    """The first sum of token vectors with something that has the positions' axis and does not depend on the tokens."""
    if not lab.contract.has_sequence:
        return PositionPart(False, "the input has no sequence axis")
    trace = lab.trace(replace(lab.full, dtype=lab.dtype))
    found = _position_sum(trace, lab.full.length)
    if found is None:
        return PositionPart(False, "nothing that has a position axis is added to the tokens")
    added, operand = found
    return describe(lab, trace, added, operand)


def _position_sum(trace: Trace, length: int) -> tuple[Node, Ref] | None:
    for node in trace.nodes:
        if base_name(node.op) in CONTRACTIONS:
            return None
        if base_name(node.op) != "add" or len(node.refs) != 2 or node.tensor is None or node.tensor.dim() < 3:
            continue
        one, other = node.refs
        token, position = (one, other) if one.taint & CONTENT else (other, one)
        if not token.taint & CONTENT or position.taint & CONTENT or not position.tensor.is_floating_point():
            continue
        axis = axis_of(position.tensor, length)
        if axis is not None and position.tensor.dim() >= 2 and axis < position.tensor.dim() - 1:
            return node, position
    return None


def describe(lab: Lab, trace: Trace, added: Node, operand: Ref) -> PositionPart:
    source, index = _source(trace, operand)
    model = lab.copy_of(lab.dtype)
    name, registered = _name_of(model, source.tensor)
    learned = bool(source.taint & PARAMETER) or isinstance(source.tensor, nn.Parameter)
    width = operand.tensor.shape[-1]
    is_table = source.node < 0 and source.tensor.dim() >= 2 and source.tensor.shape[-1] == width
    rows = source.tensor.numel() // width if is_table else 0
    values = None if learned else _rows(source.tensor if is_table else operand.tensor, width)
    owner, _, attribute = name.rpartition(".")
    holder = attribute_line(lab.origin, model, owner, attribute) if attribute else None
    rates, waves = wave_lines(lab, _class_of(lab, model, name, added), owner)
    history = tuple(dict.fromkeys(node.place for node in _history(trace, operand) if node.place.line))
    return PositionPart(
        True,
        rows=rows,
        learned=learned,
        values=values,
        index=index,
        name=name,
        registered=registered,
        key=added.key,
        added=added.place,
        made=(*((holder,) if holder else ()), *history),
        rates=rates,
        waves=waves,
    )


def _source(trace: Trace, ref: Ref) -> tuple[Ref, tuple[int, ...] | None]:
    """The tensor that positions are taken from, and the rows that are looked up."""
    while ref.node >= 0:
        node = trace.nodes[ref.node]
        op = base_name(node.op)
        if op in LOOKUPS and len(node.refs) >= 2:
            index = next((r for r in node.refs if not r.tensor.is_floating_point()), None)
            table = next((r for r in node.refs if r.tensor.is_floating_point()), node.refs[0])
            rows = () if index is None else tuple(index.tensor.reshape(-1, index.tensor.shape[-1])[0].tolist())
            return table, rows or None
        if op not in PASSED_BY or not node.refs:
            return ref, None
        ref = max(node.refs, key=lambda r: r.tensor.numel())
    return ref, None


def _history(trace: Trace, ref: Ref) -> Iterator[Node]:
    while ref.node >= 0:
        node = trace.nodes[ref.node]
        yield node
        if not node.refs:
            return
        ref = max(node.refs, key=lambda r: r.tensor.numel())


def _rows(tensor: Tensor, width: int) -> NDArray[np.float64]:
    """(N, D); of a table for every sample, the first sample's."""
    squeezed = tensor
    while squeezed.dim() > 2:
        axis = next((a for a in range(squeezed.dim() - 1) if squeezed.shape[a] == 1), 0)
        squeezed = squeezed.select(axis, 0)
    return squeezed.detach().double().reshape(-1, width).numpy()


def _name_of(model: nn.Module, tensor: Tensor) -> tuple[str, bool]:
    """(full name, whether it is a parameter or buffer) of the tensor a module holds, by its memory."""
    for named in (model.named_parameters(), model.named_buffers()):
        for name, held in named:
            if held is tensor or (held.numel() and held.data_ptr() == tensor.data_ptr()):
                return name, True
    for owner, module in model.named_modules():
        for attribute, held in vars(module).items():
            if isinstance(held, Tensor) and held.numel() and held.data_ptr() == tensor.data_ptr():
                return f"{owner}.{attribute}".lstrip("."), False
    return "", True


def _class_of(lab: Lab, model: nn.Module, name: str, added: Node) -> type:
    """The class that is likely to say how the table is made: the holder's, else the one whose line adds it."""
    owner = name.rpartition(".")[0] if name else added.module
    try:
        return type(model.get_submodule(owner))
    except AttributeError:
        return type(model)
