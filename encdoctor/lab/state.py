"""Fingerprints of what modules keep between calls, and of the process's global switches."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from encdoctor.lab.source import class_place, class_tree
from encdoctor.model import Place
from encdoctor.target import Origin

# What nn.Module itself keeps; buffers are looked at by their values.
_MACHINERY = set(vars(nn.Module()))

Fingerprints = dict[tuple[str, str], Any]


def fingerprints(model: nn.Module) -> Fingerprints:
    """(module, attribute) → something that changes when the attribute does."""
    found: Fingerprints = {}
    for owner, module in model.named_modules():
        for name, value in vars(module).items():
            if name not in _MACHINERY:
                found[owner, name] = _fingerprint(value)
        for name, buffer in module.named_buffers(recurse=False):
            found[owner, name] = _fingerprint(buffer)
    return found


def _fingerprint(value: Any) -> Any:
    if isinstance(value, Tensor):
        return tuple(value.shape), float(value.detach().double().nan_to_num().sum()) if value.numel() else 0.0
    if isinstance(value, list | tuple | set | dict):
        return type(value).__name__, len(value)
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    return type(value).__name__


def size_of(fingerprint: Any) -> int:
    """Entries of a container, 0 for all else."""
    is_container = isinstance(fingerprint, tuple) and len(fingerprint) == 2 and isinstance(fingerprint[0], str)
    return int(fingerprint[1]) if is_container else 0


def set_in_forward(origin: Origin, model: nn.Module, owner: str, attribute: str) -> Place:
    """The line outside the constructor that sets or fills `self.attribute`; the class's head where none is found."""
    for cls in type(model.get_submodule(owner)).__mro__:
        found = class_tree(cls)
        if found is None or cls.__module__.startswith("torch."):
            continue
        tree, file, before = found
        for line in _touching(tree, attribute):
            return Place(owner, cls.__name__, file, before + line, origin.owns(cls.__module__, file))
    return class_place(origin, model, owner)


FILLS = {"append", "extend", "insert", "add", "update", "setdefault", "copy_", "add_"}


def _touching(tree: ast.ClassDef, attribute: str) -> Iterator[int]:
    for method in tree.body:
        if not isinstance(method, ast.FunctionDef) or method.name == "__init__":
            continue
        for node in ast.walk(method):
            if _registers(node, attribute) or any(_names(target, attribute) for target in _written(node)):
                yield node.lineno  # type: ignore[attr-defined]


def _written(node: ast.AST) -> list[ast.expr]:
    """What an assignment, or a call that fills a container, writes into."""
    if isinstance(node, ast.Assign):
        return node.targets
    if isinstance(node, ast.AugAssign | ast.AnnAssign):
        return [node.target]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in FILLS:
        return [node.func.value]
    return []


def _registers(node: ast.AST, attribute: str) -> bool:
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and bool(node.args)
    if not is_call or not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "register_buffer":
        return False
    first = node.args[0]
    return isinstance(first, ast.Constant) and first.value == attribute


def _names(target: ast.expr, attribute: str) -> bool:
    if isinstance(target, ast.Tuple | ast.List):
        return any(_names(element, attribute) for element in target.elts)
    while isinstance(target, ast.Subscript):
        target = target.value
    is_own = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    return is_own and isinstance(target, ast.Attribute) and target.attr == attribute


SETTERS = {
    "manual_seed", "seed", "set_default_dtype", "set_grad_enabled", "set_num_threads", "set_float32_matmul_precision",
    "use_deterministic_algorithms", "set_detect_anomaly", "set_fastpath_enabled", "set_default_tensor_type",
    "set_rng_state",
}  # fmt: skip


def lines_that_set_globals(origin: Origin, model: nn.Module) -> Iterator[Place]:
    """Calls outside constructors that make a global setting."""

    def sets(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SETTERS

    return _lines(origin, model, sets)


def lines_that_read_training(origin: Origin, model: nn.Module) -> Iterator[Place]:
    """Where `self.training` is read."""

    def reads(node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and node.attr == "training" and isinstance(node.ctx, ast.Load)

    return _lines(origin, model, reads)


def _lines(origin: Origin, model: nn.Module, wanted: Callable[[ast.AST], bool]) -> Iterator[Place]:
    """Lines of the model's classes, outside constructors, that hold what is wanted."""
    seen: set[type] = set()
    for owner, module in model.named_modules():
        cls = type(module)
        found = None if cls in seen or cls.__module__.startswith("torch.") else class_tree(cls)
        seen.add(cls)
        if found is None:
            continue
        tree, file, before = found
        methods = [m for m in tree.body if isinstance(m, ast.FunctionDef) and m.name != "__init__"]
        for node in (node for method in methods for node in ast.walk(method) if wanted(node)):
            own = origin.owns(cls.__module__, file)
            yield Place(owner, cls.__name__, file, before + node.lineno, own)  # type: ignore[attr-defined]


def switches() -> dict[str, Any]:
    """The process-wide settings that a forward has no business to change."""
    return {
        "default dtype": torch.get_default_dtype(),
        "gradient mode": torch.is_grad_enabled(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "anomaly detection": torch.is_anomaly_enabled(),
        "number of threads": torch.get_num_threads(),
        "matmul precision": torch.get_float32_matmul_precision(),
        "fast path of attention": torch.backends.mha.get_fastpath_enabled(),
    }


def usual_switches() -> None:
    """torch's defaults, as an earlier call of the model may have left others; the lab puts back what was."""
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    torch.use_deterministic_algorithms(False)
    torch.autograd.set_detect_anomaly(False)
    torch.backends.mha.set_fastpath_enabled(True)


def random_states() -> dict[str, Any]:
    """Where the three generators stand."""
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": repr(np.random.get_state()),
        "random": repr(random.getstate()),
    }


def clone_inputs(model: nn.Module) -> None:
    """From now on the model is handed copies of the caller's tensors."""

    def copies(_: nn.Module, args: Any, kwargs: Any) -> Any:
        return _cloned(args), {name: _cloned(value) for name, value in kwargs.items()}

    model.register_forward_pre_hook(copies, with_kwargs=True)


def _cloned(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {name: _cloned(item) for name, item in value.items()}
    return type(value)(map(_cloned, value)) if type(value) in (list, tuple) else value


def forget(model: nn.Module) -> None:
    """From now on every call finds the modules' attributes and buffers as they are now."""
    kept = [(module, _attributes(module), dict(module._buffers)) for module in model.modules()]
    values = {id(b): b.clone() for _, _, buffers in kept for b in buffers.values() if b is not None}

    def restore(_: nn.Module, args: Any) -> None:
        for module, attributes, buffers in kept:
            for name in set(vars(module)) - _MACHINERY - set(attributes):
                delattr(module, name)
            vars(module).update(_attributes_copied(attributes))
            module._buffers = {n: None if b is None else values[id(b)].clone() for n, b in buffers.items()}

    model.register_forward_pre_hook(restore)


def _attributes(module: nn.Module) -> dict[str, Any]:
    return _attributes_copied({name: value for name, value in vars(module).items() if name not in _MACHINERY})


def _attributes_copied(attributes: dict[str, Any]) -> dict[str, Any]:
    def copied(value: Any) -> Any:
        if type(value) in (list, dict, set):
            return value.copy()
        return value.clone() if type(value) is Tensor else value

    return {name: copied(value) for name, value in attributes.items()}
