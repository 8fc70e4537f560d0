"""Finds modules that run but are not registered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import nn

from encdoctor.evidence.modules import ModuleTree, Unregistered
from encdoctor.lab.lab import Lab
from encdoctor.lab.source import attribute_line, class_place


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
    for module, owner, place in trace.unregistered:
        if id(module) not in seen:
            found.append(_entry(owner, module, "", "", place))
    return ModuleTree(tuple(found), sum(p.numel() for p in model.parameters()), class_place(lab.origin, model))


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


