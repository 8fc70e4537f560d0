"""Finds parameters that are never read, never trained, or no longer tied."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeGuard

import torch
from torch import Tensor, nn

from encdoctor.evidence.parts import BrokenTie, FrozenPart, Parts, UnusedPart
from encdoctor.lab.gradients import moves_output
from encdoctor.lab.lab import Lab, NotMeasured
from encdoctor.lab.source import attribute_line, class_place, class_tree, frozen_line
from encdoctor.model import Place

CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential, nn.ParameterList, nn.ParameterDict)
# How many frozen parts are changed to see whether they matter.
FROZEN_AT_MOST = 12


def gather_parts(lab: Lab) -> Parts:
    """One recorded run in eval mode and one in train mode; frozen parts are changed one by one."""
    return Parts(tuple(_frozen(lab)), tuple(_unused(lab)), tuple(_broken_ties(lab)))


# ---- frozen ----------------------------------------------------------------------------------------------------


def _frozen(lab: Lab) -> Iterator[FrozenPart]:
    names = [name for name, p in lab.model.named_parameters() if not p.requires_grad]
    if not names:
        return
    model = lab.fresh().to(getattr(torch, lab.dtype))
    situation = replace(lab.padded, dtype=lab.dtype)
    twin = _twin(lab)
    for name in _topmost(lab.model, set(names))[:FROZEN_AT_MOST]:
        inside = [(n, p) for n, p in model.named_parameters() if n == name or n.startswith(f"{name}.")]
        moves = max(moves_output(lab, model, p, situation) for _, p in inside)
        random = None if twin is None else any(_differs(lab.model, twin, n) for n, _ in inside)
        place = frozen_line(lab.origin, lab.model, name)
        yield FrozenPart(name, sum(p.numel() for _, p in inside), moves, random, place)


def _twin(lab: Lab) -> nn.Module | None:
    """The same model built with another seed."""
    if lab.rebuild is None:
        return None
    try:
        torch.manual_seed(90_001)
        return lab.rebuild()
    except Exception:  # a second one cannot be built: then we do not know
        return None


def _differs(model: nn.Module, twin: nn.Module, name: str) -> bool:
    one, other = dict(model.named_parameters())[name], dict(twin.named_parameters()).get(name)
    return other is not None and not torch.equal(one.detach(), other.detach())


# ---- unused ----------------------------------------------------------------------------------------------------


def _unused(lab: Lab) -> Iterator[UnusedPart]:
    unread = {name for name, _ in lab.model.named_parameters()} - _read_names(lab)
    for name in _topmost(lab.model, unread):
        owner, _, attribute = name.rpartition(".")
        container = lab.model.get_submodule(owner)
        count = sum(p.numel() for n, p in lab.model.named_parameters() if n == name or n.startswith(f"{name}."))
        place = attribute_line(lab.origin, lab.model, owner, attribute) or class_place(lab.origin, lab.model, owner)
        yield UnusedPart(name, count, _mentioned(container, attribute), isinstance(container, CONTAINERS), place)


def _read_names(lab: Lab) -> set[str]:
    """Parameters that some operation reads, in eval or in train mode, with a mask or without."""
    model = lab.copy_of(lab.dtype)
    every = list(model.named_parameters(remove_duplicate=False))
    situations = [
        replace(lab.padded, dtype=lab.dtype),
        replace(lab.full, dtype=lab.dtype, masked=False),
        replace(lab.padded, dtype=lab.dtype, training=True),
    ]
    traces = [lab.trace(situation) for situation in situations]
    if any(trace.output is None for trace in traces):
        raise NotMeasured("a call raises, so what it would have read is not known")
    read = {id(r.tensor) for trace in traces for node in trace.nodes for r in node.refs if r.node < 0}
    return {name for name, parameter in every if id(parameter) in read}


def _topmost(model: nn.Module, names: set[str]) -> list[str]:
    """The shortest module paths below which all parameters are in `names`, in the order of registration."""
    found: list[str] = []
    every = [name for name, _ in model.named_parameters()]
    for name in every:
        if name not in names or any(name == f or name.startswith(f"{f}.") for f in found):
            continue
        parts = name.split(".")
        prefixes = [".".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
        found.append(next(p for p in prefixes if all(n in names for n in every if n == p or n.startswith(f"{p}."))))
    return found


def _mentioned(owner: nn.Module, attribute: str) -> bool:
    """Whether a method other than `__init__` names the attribute."""
    for cls in type(owner).__mro__:
        found = class_tree(cls)
        if found is None:
            continue
        methods = [m for m in found[0].body if isinstance(m, ast.FunctionDef) and m.name != "__init__"]
        nodes = [node for method in methods for node in ast.walk(method)]
        if any(isinstance(node, ast.Attribute) and node.attr == attribute for node in nodes):
            return True
    return False


# ---- ties ------------------------------------------------------------------------------------------------------


def _broken_ties(lab: Lab) -> Iterator[BrokenTie]:
    for owner, module in lab.model.named_modules():
        found = class_tree(type(module))
        if found is None or type(module).__module__.startswith("torch."):
            continue
        tree, file, before = found
        own = lab.origin.owns(type(module).__module__, file)
        assigned = [(_path(n.targets[0]), _path(n.value), n.lineno) for n in ast.walk(tree) if _assigns(n)]
        for left, right, line in assigned:
            if not left or not right or not _are_two(module, left, right):
                continue
            replaced = [at for target, value, at in assigned if target in (left, right) and value not in (left, right)]
            places = [Place(owner, type(module).__name__, file, before + at, own) for at in (*replaced, line)]
            prefix = f"{owner}." if owner else ""
            yield BrokenTie(prefix + left, prefix + right, tuple(places))


def _assigns(node: ast.AST) -> TypeGuard[ast.Assign]:
    return isinstance(node, ast.Assign) and len(node.targets) == 1


def _are_two(module: nn.Module, left: str, right: str) -> bool:
    one, other = _parameter(module, left), _parameter(module, right)
    return one is not None and other is not None and one is not other and one.shape == other.shape


def _path(node: ast.expr) -> str:
    """`self.a.b` as "a.b", anything else as ""."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed(parts)) if isinstance(node, ast.Name) and node.id == "self" else ""


def _parameter(module: nn.Module, path: str) -> Tensor | None:
    value: object = module
    for part in path.split("."):
        value = getattr(value, part, None)
    return value if isinstance(value, nn.Parameter) else None
