"""Finds registered modules that do not take part, lists of one object, and layers that start equal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import nn

from encdoctor.evidence.blocks import Blocks, Kind
from encdoctor.evidence.layers import Alike, Layers, Unused
from encdoctor.lab.lab import Lab, NotMeasured
from encdoctor.lab.readings import reads
from encdoctor.lab.source import attribute_line, class_place
from encdoctor.lab.stream import tensors
from encdoctor.lab.trace import Trace
from encdoctor.model import Place


def gather_layers(lab: Lab) -> Layers:
    """From the padded trace; a parameter takes part where any output depends on it."""
    model = lab.copy_of(lab.dtype)
    trace = lab.trace(replace(lab.padded, dtype=lab.dtype))
    if trace.output is None:
        raise NotMeasured("the forward did not come to an end")
    live, touched = leaves_used(trace)
    return Layers(
        tuple(_unused(lab, model, live, touched)),
        tuple(_alike(lab, model)),
        tuple(_repeated(lab)),
    )


# ---- taking part -----------------------------------------------------------------------------------------------


def leaves_used(trace: Trace) -> tuple[set[int], set[int]]:
    """Storages of leaves that reach an output, and of all that any operation reads."""
    outputs = {id(t) for t in tensors(trace.output)}
    reaching: set[int] = set()
    live, touched = {_storage(t) for t in tensors(trace.output)}, set()
    for node in reversed(trace.nodes):
        leads_on = node.index in reaching or any(id(t) in outputs for t in tensors(node.output))
        for ref in node.refs:
            if ref.node < 0:
                touched.add(_storage(ref.tensor))
            if leads_on and ref.node < 0:
                live.add(_storage(ref.tensor))
            elif leads_on:
                reaching.add(ref.node)
    return live, touched


def _storage(tensor: torch.Tensor) -> int:
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return id(tensor)


def _unused(lab: Lab, model: nn.Module, live: set[int], touched: set[int]) -> Iterator[Unused]:
    reported: list[str] = []
    for name, module in model.named_modules():
        if not name or any(name.startswith(f"{done}.") for done in reported) or not _is_dead(module, live):
            continue
        reported.append(name)
        yield _describe(lab, model, name, module, live, touched)


def _is_dead(module: nn.Module, live: set[int]) -> bool:
    parameters = [p for p in module.parameters() if p.numel()]
    return bool(parameters) and not any(_storage(p) in live for p in parameters)


def _describe(lab: Lab, model: nn.Module, name: str, module: nn.Module, live: set[int], touched: set[int]) -> Unused:
    owner, _, attribute = name.rpartition(".")
    siblings = False
    while attribute.isdigit():  # an entry of a list: what counts is the list
        others = [m for n, m in model.get_submodule(owner).named_children() if n != name.rpartition(".")[2]]
        siblings = siblings or any(list(m.parameters()) and not _is_dead(m, live) for m in others)
        owner, _, attribute = owner.rpartition(".")
    lines = reads(lab.origin, model, attribute, owner) if attribute else []
    place = attribute_line(lab.origin, model, owner, attribute) if attribute else None
    return Unused(
        module=name,
        class_name=type(module).__name__,
        parameters=sum(p.numel() for p in module.parameters()),
        ran=any(_storage(p) in touched for p in module.parameters()),
        siblings=siblings,
        composite=siblings or sum(1 for m in module.modules() if m._parameters) > 1,
        place=replace(place or class_place(lab.origin, model, name), module=name),
        lines=tuple(replace(line, module=name) for line in lines),
    )


# ---- the same, or alike ------------------------------------------------------------------------------------------


def _alike(lab: Lab, model: nn.Module) -> Iterator[Alike]:
    reported: list[str] = []
    for name, module in model.named_modules():
        if not isinstance(module, nn.ModuleList | nn.Sequential) or any(name.startswith(f"{r}.") for r in reported):
            continue
        entries = [m for m in module._modules.values() if m is not None and any(p.dim() > 1 for p in m.parameters())]
        if len(entries) < 2:
            continue
        same = len({id(m) for m in entries}) == 1
        if same or _equal_weights(entries):
            reported.append(name)
            yield Alike(name, type(entries[0]).__name__, len(entries), same, _made_at(lab, model, name))


def _made_at(lab: Lab, model: nn.Module, name: str) -> Place:
    """The line of the attribute that holds a list; for a list inside a torch module, the attribute that holds that."""
    path = name
    while path:
        owner, _, attribute = path.rpartition(".")
        place = attribute_line(lab.origin, model, owner, attribute)
        if place is not None and place.own:
            return replace(place, module=name)
        path = owner
    return class_place(lab.origin, model, name)


def _equal_weights(entries: list[nn.Module]) -> bool:
    if len({type(m) for m in entries}) > 1:
        return False
    first, *rest = [dict(m.named_parameters()) for m in entries]
    random = [n for n, p in first.items() if p.dim() > 1 and p.numel() > 1 and bool((p != p.reshape(-1)[0]).any())]
    if not random:
        return False
    return all(n in other and torch.equal(first[n], other[n]) for other in rest for n in random)


def _repeated(lab: Lab) -> Iterator[tuple[str, int, Place]]:
    """Layers whose attention stands on the stream several times at the same line: one layer in a loop."""
    attention = [s for s in lab.get(Blocks).sublayers if s.kind is Kind.ATTENTION and s.places]
    counts = Counter((s.layer, s.places[0]) for s in attention)
    for (layer, place), count in counts.items():
        if count > 1 and layer and "?" not in layer:
            yield layer, count, place
