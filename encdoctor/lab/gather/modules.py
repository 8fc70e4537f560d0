"""Finds modules that run but are not registered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from encdoctor.evidence.modules import LateParameter, ModuleTree, Unregistered
from encdoctor.lab.lab import Lab
from encdoctor.lab.source import attribute_line, class_place, later_line
from encdoctor.lab.trace import Trace


def gather_modules(lab: Lab) -> ModuleTree:
    """Modules in plain lists, dicts or closures that the forward calls."""
    model = lab.copy_of(lab.dtype)
    trace = lab.trace(replace(lab.padded, dtype=lab.dtype))
    called = {id(module): name for module, name, _ in trace.unregistered}
    places = {id(module): place for module, _, place in trace.unregistered}
    found, seen = [], set()
    for owner, attribute, container, module in _hidden(model):
        if id(module) not in called or id(module) in seen:
            continue
        seen.add(id(module))
        place = attribute_line(lab.origin, model, owner, attribute) or places[id(module)]
        found.append(_entry(owner, module, attribute, container, place))
    again: set[int] = set()
    if called.keys() - seen:
        second = lab.trace(replace(lab.padded, dtype=lab.dtype, seed=1))
        again = {id(module) for module, _, _ in second.unregistered}
    for module, owner, place in trace.unregistered:
        if id(module) not in seen:
            found.append(replace(_entry(owner, module, "", "", place), created=bool(again) and id(module) not in again))
    late = tuple(_late(lab, model, trace, {id(p) for module in called for p in _parameters_of(trace, module)}))
    count = sum(p.numel() for p in model.parameters())
    return ModuleTree(tuple(found), count, class_place(lab.origin, model), late)


def _parameters_of(trace: Trace, module_id: int) -> list[nn.Parameter]:
    return [p for module, _, _ in trace.unregistered if id(module) == module_id for p in module.parameters()]


def _late(lab: Lab, model: nn.Module, trace: Trace, known: set[int]) -> Iterator[LateParameter]:
    """Parameters that the first forward registers, and bare ones that it makes and reads."""
    before = {name for name, _ in lab.model.named_parameters(remove_duplicate=False)}
    for name, parameter in model.named_parameters():
        if name not in before:
            yield LateParameter(name, parameter.numel(), later_line(lab.origin, lab.model, name))
    registered = {id(p) for p in model.parameters()} | known | {id(t) for _, t in tensors_outside(model)}
    for node in trace.nodes:
        for ref in node.refs:
            if isinstance(ref.tensor, nn.Parameter) and ref.node < 0 and id(ref.tensor) not in registered:
                registered.add(id(ref.tensor))
                if ref.tensor.requires_grad:
                    yield LateParameter("", ref.tensor.numel(), node.place)


def _entry(owner: str, module: nn.Module, held_in: str, container: str, place: Any) -> Unregistered:
    count = sum(p.numel() for p in module.parameters())
    return Unregistered(owner, type(module).__name__, count, held_in, container, place)


def _hidden(model: nn.Module) -> Iterator[tuple[str, str, str, nn.Module]]:
    """(owner, attribute, kind of container, module) for modules kept in plain containers."""
    for owner, module in model.named_modules():
        for attribute, value in vars(module).items():
            if attribute.startswith("_") and attribute in nn.Module().__dict__:
                continue
            if isinstance(value, list | tuple | set | dict):
                for inner in _modules_in(value):
                    yield owner, attribute, type(value).__name__, inner


def _modules_in(value: Any, depth: int = 0) -> Iterator[nn.Module]:
    if isinstance(value, nn.Module):
        yield value
    elif isinstance(value, dict) and depth < 3:
        for item in value.values():
            yield from _modules_in(item, depth + 1)
    elif isinstance(value, list | tuple | set) and depth < 3:
        for item in value:
            yield from _modules_in(item, depth + 1)




def tensors_outside(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Tensors that modules hold as plain attributes, and the parameters of modules in plain containers."""
    for owner, module in model.named_modules():
        prefix = f"{owner}." if owner else ""
        for attribute, value in vars(module).items():
            if isinstance(value, Tensor):
                yield prefix + attribute, value
    for owner, attribute, _, inner in _hidden(model):
        for tensor in (*inner.parameters(), *inner.buffers()):
            yield f"{owner}.{attribute}".lstrip("."), tensor
