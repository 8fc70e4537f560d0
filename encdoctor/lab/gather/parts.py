"""Finds parameters that are never trained, never used, or no longer tied."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeGuard

import torch
from torch import Tensor, nn

from encdoctor.evidence.layers import Layers
from encdoctor.evidence.parts import BrokenTie, FrozenPart, Parts, UnusedPart
from encdoctor.lab.gather.gradients import moves_output
from encdoctor.lab.gather.layers import leaves_used
from encdoctor.lab.lab import Lab, NotMeasured
from encdoctor.lab.source import building, class_tree, frozen_line, is_read, nearest_line
from encdoctor.model import Place

# How many parts are changed to see whether they matter.
CHANGED_AT_MOST = 12


def gather_parts(lab: Lab) -> Parts:
    """Recorded runs with a mask, without one and in train mode; frozen parts are changed one by one."""
    return Parts(tuple(_frozen(lab)), tuple(_unused(lab)), tuple(_broken_ties(lab)))


# ---- frozen ----------------------------------------------------------------------------------------------------


def _frozen(lab: Lab) -> Iterator[FrozenPart]:
    frozen = {name for name, p in lab.model.named_parameters() if not p.requires_grad}
    if not frozen:
        return
    model = lab.fresh().to(getattr(torch, lab.dtype))
    situation = replace(lab.padded, dtype=lab.dtype)
    twin = twin_of(lab)
    groups = _alike(_topmost(lab.model, frozen), lambda name: frozen_line(lab.origin, lab.model, name))
    for names, places in groups[:CHANGED_AT_MOST]:
        inside = _inside(model, names)
        moves = max(moves_output(lab, model, p, situation) for p in inside.values())
        random = None if twin is None else any(_differs(lab.model, twin, n) for n in inside)
        yield FrozenPart(_title(names), sum(p.numel() for p in inside.values()), moves, random, places)


def twin_of(lab: Lab) -> nn.Module | None:
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
    names, read = _reaching_nothing(lab)
    model = lab.fresh().to(getattr(torch, lab.dtype))
    situation = replace(lab.padded, dtype=lab.dtype)
    names -= {n for told in _told_as_layers(lab) for n in names if n == told or n.startswith(f"{told}.")}
    groups = _alike(_topmost(lab.model, names), lambda name: nearest_line(lab.origin, lab.model, name))
    for part, places in groups:
        inside = _inside(model, part)
        ran = bool(read & set(inside))
        if ran and any(moves_output(lab, model, p, situation) for p in list(inside.values())[:CHANGED_AT_MOST]):
            continue  # read as a number, which the record does not follow
        mentioned = not ran and _mentioned(lab.model, part[0])
        yield UnusedPart(_title(part), sum(p.numel() for p in inside.values()), ran, mentioned, places)


def _told_as_layers(lab: Lab) -> list[str]:
    """Layers that layer-unused names: others of their list take part, or they are run whole and lost."""
    return [u.module for u in lab.get(Layers).unused if u.siblings or (u.ran and u.composite)]


def _reaching_nothing(lab: Lab) -> tuple[set[str], set[str]]:
    """Parameters that no output depends on, in eval or train mode, with a mask or without; and those that are read."""
    every = list(lab.copy_of(lab.dtype).named_parameters(remove_duplicate=False))
    situations = [
        replace(lab.padded, dtype=lab.dtype),
        replace(lab.full, dtype=lab.dtype, masked=False),
        replace(lab.padded, dtype=lab.dtype, training=True),
    ]
    traces = [lab.trace(situation) for situation in situations]
    if any(trace.output is None for trace in traces):
        raise NotMeasured("a call raises, so what it would have read is not known")
    used = [leaves_used(trace) for trace in traces]
    live = {name for name, p in every for reaching, _ in used if _storage(p) in reaching}
    read = {name for name, p in every for _, touched in used if _storage(p) in touched}
    return {name for name, _ in lab.model.named_parameters()} - live, read


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _mentioned(model: nn.Module, name: str) -> bool:
    """Whether a class on the way to the part reads it after building."""
    owner, _, attribute = name.rpartition(".")
    if is_read(type(model.get_submodule(owner)), attribute):
        return True
    while owner:
        owner = owner.rpartition(".")[0]
        if is_read(type(model.get_submodule(owner)), attribute, through=True):
            return True
    return False


# ---- groups ----------------------------------------------------------------------------------------------------


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


def _alike(names: list[str], place: Callable[[str], Place]) -> list[tuple[list[str], tuple[Place, ...]]]:
    """Parts that differ in the number of their layer only, or come from one line, are one."""
    groups: dict[tuple[str, int, str], tuple[list[str], list[Place]]] = {}
    for name in names:
        at = place(name)
        key = (at.file, at.line, "" if at.line else re.sub(r"\.\d+", ".*", name))
        members, places = groups.setdefault(key, ([], []))
        members.append(name)
        places.append(replace(at, module=name))
    return [(members, tuple(places)) for members, places in groups.values()]


def _inside(model: nn.Module, names: list[str]) -> dict[str, nn.Parameter]:
    return {n: p for n, p in model.named_parameters() if any(n == o or n.startswith(f"{o}.") for o in names)}


def _title(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


# ---- ties ------------------------------------------------------------------------------------------------------


def _broken_ties(lab: Lab) -> Iterator[BrokenTie]:
    for owner, module in lab.model.named_modules():
        for cls in type(module).__mro__:
            if not cls.__module__.startswith("torch.") and cls is not object:
                yield from _ties_of(lab, owner, module, cls)


def _ties_of(lab: Lab, owner: str, module: nn.Module, cls: type) -> Iterator[BrokenTie]:
    found = class_tree(cls)
    if found is None:
        return
    tree, file, before = found
    own = lab.origin.owns(cls.__module__, file)
    runs = building(type(module))
    methods = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in runs]
    assigned = [(_path(n.targets[0]), _path(n.value), n.lineno, m) for m in methods for n in _unconditional(m.body)]
    for left, right, line, method in assigned:
        left, right = left.removesuffix(".data"), right.removesuffix(".data")
        one, other = _parameter(module, left), _parameter(module, right)
        if one is None or other is None or one is other or one.shape != other.shape:
            continue
        # what comes earlier in the same method made the two, and did not part them
        later = [(target, at) for target, _, at, m in assigned if at > line or m is not method]
        replaced = [at for target, at in later if _replaces(target, (left, right))]
        places = [Place(owner, cls.__name__, file, before + at, own) for at in (*replaced, line)]
        prefix = f"{owner}." if owner else ""
        yield BrokenTie(prefix + left, prefix + right, one.data_ptr() == other.data_ptr(), tuple(places))


def _unconditional(body: list[ast.stmt]) -> Iterator[ast.Assign]:
    """Assignments that are made whatever the arguments are."""
    for statement in body:
        if _assigns(statement):
            yield statement
        elif isinstance(statement, ast.With):
            yield from _unconditional(statement.body)


def _assigns(node: ast.AST) -> TypeGuard[ast.Assign]:
    return isinstance(node, ast.Assign) and len(node.targets) == 1


def _replaces(target: str, tied: tuple[str, str]) -> bool:
    """Whether an assignment sets one of the two, or what holds it."""
    return bool(target) and any(name == target or name.startswith(f"{target}.") for name in tied)


def _path(node: ast.expr) -> str:
    """`self.a.b` as "a.b", anything else as ""."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed(parts)) if isinstance(node, ast.Name) and node.id == "self" else ""


def _parameter(module: nn.Module, path: str) -> nn.Parameter | None:
    value: object = module
    for part in path.split("."):
        value = getattr(value, part, None)
    return value if isinstance(value, nn.Parameter) else None
