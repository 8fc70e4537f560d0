"""Reads the weights of the maps and norms that take part, and finds the lines that draw them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from encdoctor.evidence.blocks import Blocks
from encdoctor.evidence.initialisation import Initialisation, MapWeight, NormGain
from encdoctor.lab.lab import Lab, NotMeasured
from encdoctor.lab.regions import stream_of
from encdoctor.lab.sites import base_name
from encdoctor.lab.source import attribute_line, class_tree
from encdoctor.lab.stream import MOVES, Stream
from encdoctor.lab.trace import PARAMETER, Node, Ref
from encdoctor.model import Place

DRAWING = {"normal_", "uniform_", "xavier_uniform_", "xavier_normal_", "kaiming_uniform_", "kaiming_normal_",
           "trunc_normal_", "orthogonal_", "constant_", "fill_", "ones_", "zeros_"}  # fmt: skip


def gather_initialisation(lab: Lab) -> Initialisation:
    """From the padded trace; each weight once."""
    model = lab.copy_of(lab.dtype)
    trace = lab.trace(replace(lab.padded, dtype=lab.dtype))
    stream = stream_of(lab, trace)
    if stream is None:
        raise NotMeasured("the output was not found among the recorded operations")
    names = {_storage(p): name for name, p in reversed(list(model.named_parameters()))}
    layers = {s.layer for s in lab.get(Blocks).sublayers if s.layer}
    return Initialisation(
        tuple(_maps(lab, stream, names, layers)),
        tuple(_gains(stream, names)),
        tuple(_drawn_at(lab, model)),
    )


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


# ---- maps ------------------------------------------------------------------------------------------------------


def _maps(lab: Lab, stream: Stream, names: dict[int, str], layers: set[str]) -> Iterator[MapWeight]:
    seen: set[str] = set()
    for n in sorted(stream.live):
        weight = stream.weight(n) if n >= 0 and stream.is_linear(n) else None
        name = names.get(_storage(weight.tensor), "") if weight is not None else ""
        if weight is None or not name or name in seen:
            continue
        seen.add(name)
        rows = _by_unit(stream.nodes[n], weight.tensor)
        fan_in, node = rows.shape[1], stream.nodes[n]
        yield MapWeight(
            name,
            float(rows.detach().std(correction=0) * fan_in**0.5),
            fan_in,
            len(rows),
            _equal(rows),
            any(node.module == layer or node.module.startswith(f"{layer}.") for layer in layers),
            _set_at(lab, name) or node.place,
        )


def _by_unit(node: Node, weight: Tensor) -> Tensor:
    """(output units, fan-in)."""
    if "convolution" in node.op:
        return weight.reshape(weight.shape[0], -1)
    return weight.reshape(-1, *weight.shape[-2:])[0].t()


def _equal(rows: Tensor) -> int:
    """How many rows equal another one; rows of zeros do not count, they are a choice."""
    rows = rows[rows.abs().amax(1) > 0]
    return len(rows) - len(torch.unique(rows, dim=0)) if len(rows) else 0


def _set_at(lab: Lab, name: str) -> Place | None:
    """The innermost attribute of the user's own classes that holds a parameter."""
    path = name
    while path:
        owner, _, attribute = path.rpartition(".")
        place = attribute_line(lab.origin, lab.model, owner, attribute)
        if place is not None and place.own:
            return replace(place, module=name.rpartition(".")[0])
        path = owner
    return None


# ---- norms -----------------------------------------------------------------------------------------------------


def _gains(stream: Stream, names: dict[int, str]) -> Iterator[NormGain]:
    seen: set[str] = set()
    for n in sorted(stream.norms):
        if n not in stream.live:
            continue
        gain, at = _gain(stream, n)
        name = names.get(_storage(gain.tensor), "") if gain is not None else ""
        if gain is None or name in seen:
            continue
        seen.add(name)
        yield NormGain(
            name or stream.nodes[at].module, float(gain.tensor.detach().abs().amax()), _ends_branch(stream, at),
            stream.nodes[at].place,
        )  # fmt: skip


def _gain(stream: Stream, n: int) -> tuple[Ref | None, int]:
    """The gain of a norm and where it is applied: an operand of torch's, else the next product with a parameter."""
    node = stream.nodes[n]
    weights = [r for r in node.refs[1:] if r.taint & PARAMETER and r.tensor.dim() == 1]
    if weights:
        return weights[0], n
    for reader in stream.readers.get(n, []):
        if base_name(stream.nodes[reader].op) == "mul":
            learned = [r for r in stream.nodes[reader].refs if r.taint == PARAMETER and r.tensor.numel() > 1]
            if learned:
                return learned[0], reader
    return None, n


def _ends_branch(stream: Stream, n: int) -> bool:
    for _ in range(6):
        readers = stream.readers.get(n, [])
        if len(readers) != 1:
            return False
        n = readers[0]
        op = base_name(stream.nodes[n].op)
        if op in ("add", "sub") and len(stream.sources[n]) == 2:
            return True
        if op not in MOVES | {"mul", "add"}:
            return False
    return False


# ---- where weights are drawn -------------------------------------------------------------------------------------


def _drawn_at(lab: Lab, model: nn.Module) -> Iterator[Place]:
    """Lines of the user's own classes that fill weights, the target's first."""
    for cls in dict.fromkeys(type(m) for m in model.modules()):
        found = class_tree(cls)
        if found is None or not lab.origin.owns(cls.__module__, found[1]):
            continue
        tree, file, before = found
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in DRAWING:
                yield Place(_first_of(model, cls), cls.__name__, file, before + node.lineno, True)


def _first_of(model: nn.Module, cls: type) -> str:
    names: list[str] = [name for name, module in model.named_modules() if type(module) is cls]
    return names[0]
