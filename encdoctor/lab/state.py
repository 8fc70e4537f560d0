"""Fingerprints of what modules keep between calls, and of the process's global switches."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
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


def _touching(tree: ast.ClassDef, attribute: str) -> Iterator[int]:
    for method in tree.body:
        if not isinstance(method, ast.FunctionDef) or method.name == "__init__":
            continue
        for node in ast.walk(method):
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AugAssign | ast.AnnAssign):
                targets = [node.target]
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                grows = node.func.attr in ("append", "extend", "insert", "add", "update", "setdefault", "copy_", "add_")
                targets = [node.func.value] if grows else []
                if node.func.attr == "register_buffer" and node.args and isinstance(node.args[0], ast.Constant):
                    if node.args[0].value == attribute:
                        yield node.lineno
            if any(_names(target, attribute) for target in targets):
                yield node.lineno  # type: ignore[attr-defined]


def _names(target: ast.expr, attribute: str) -> bool:
    if isinstance(target, ast.Tuple | ast.List):
        return any(_names(element, attribute) for element in target.elts)
    while isinstance(target, ast.Subscript):
        target = target.value
    is_own = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    return is_own and isinstance(target, ast.Attribute) and target.attr == attribute


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


def random_states() -> dict[str, Any]:
    """Where the three generators stand."""
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": repr(np.random.get_state()),  # noqa: NPY002
        "random": repr(random.getstate()),
    }


def seed_all(seed: int) -> None:
    """Python's and NumPy's generators; torch's is set by the lab for each run."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
