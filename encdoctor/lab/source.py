"""Reads the target's own source: where an attribute is set, which line says what. Static, nothing is run."""

from __future__ import annotations

import ast
import inspect
import textwrap

from torch import nn

from encdoctor.model import Place
from encdoctor.target import Origin


def class_tree(cls: type) -> tuple[ast.ClassDef, str, int] | None:
    """(syntax tree, file, first line − 1) of a class, None where its source is not to be had."""
    try:
        lines, start = inspect.getsourcelines(cls)
        file = inspect.getsourcefile(cls) or ""
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return None
    node = tree.body[0]
    return (node, file, start - 1) if isinstance(node, ast.ClassDef) else None


def attribute_line(origin: Origin, model: nn.Module, owner: str, attribute: str) -> Place | None:
    """The line where `self.attribute` is set, or registered, in the class of the submodule called `owner`."""
    module = model.get_submodule(owner)
    for cls in type(module).__mro__:
        found = class_tree(cls)
        if found is None or cls.__module__.startswith("torch."):
            continue
        tree, file, before = found
        for node in ast.walk(tree):
            if _sets(node, attribute):
                own = origin.owns(cls.__module__, file)
                return Place(owner, cls.__name__, file, before + node.lineno, own)  # type: ignore[attr-defined]
    return None


def frozen_line(origin: Origin, model: nn.Module, name: str) -> Place:
    """The line on which a part's gradient is switched off, else where the part is set, else the class."""
    parts = name.split(".")
    for depth in range(len(parts), -1, -1):
        owner = ".".join(parts[:depth])
        module = model.get_submodule(owner) if _is_module(model, owner) else None
        found = class_tree(type(module)) if module is not None else None
        if module is None or found is None or type(module).__module__.startswith("torch."):
            continue
        tree, file, before = found
        rest = set(parts[depth:])
        for node in ast.walk(tree):
            if isinstance(node, ast.stmt) and _freezes(node) and (not rest or _names(node) & rest):
                own = origin.owns(type(module).__module__, file)
                return Place(owner, type(module).__name__, file, before + node.lineno, own)
    owner, _, attribute = name.rpartition(".")
    return attribute_line(origin, model, owner, attribute) or class_place(origin, model, owner)


def _is_module(model: nn.Module, name: str) -> bool:
    try:
        model.get_submodule(name)
    except AttributeError:
        return False
    return True


def _freezes(node: ast.stmt) -> bool:
    """Whether a simple statement sets requires_grad to False, by assignment, call or keyword."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.If | ast.With):
        return False
    text = ast.unparse(node).replace(" ", "")
    return "requires_grad_(False)" in text or "requires_grad=False" in text


def _names(node: ast.stmt) -> set[str]:
    return {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}


def buffer_line(origin: Origin, model: nn.Module, name: str) -> Place | None:
    """The same for a buffer or parameter by its full name."""
    owner, _, attribute = name.rpartition(".")
    return attribute_line(origin, model, owner, attribute)


def class_place(origin: Origin, model: nn.Module, owner: str = "") -> Place:
    """The head of a submodule's class."""
    cls = type(model.get_submodule(owner))
    found = class_tree(cls)
    if found is None:
        return Place(owner, cls.__name__)
    _, file, before = found
    return Place(owner, cls.__name__, file, before + 1, origin.owns(cls.__module__, file))


def _sets(node: ast.AST, attribute: str) -> bool:
    if isinstance(node, ast.Assign):
        return any(_is_self(target, attribute) for t in node.targets for target in _targets(t))
    if isinstance(node, ast.AnnAssign | ast.AugAssign):
        return _is_self(node.target, attribute)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        first = node.args[0]
        registers = node.func.attr in ("register_buffer", "register_parameter", "add_module", "register_module")
        return registers and isinstance(first, ast.Constant) and first.value == attribute
    return False


def _targets(target: ast.expr) -> list[ast.expr]:
    return list(target.elts) if isinstance(target, ast.Tuple | ast.List) else [target]


def _is_self(target: ast.expr, attribute: str) -> bool:
    if isinstance(target, ast.Subscript):
        target = target.value
    return (
        isinstance(target, ast.Attribute)
        and target.attr == attribute
        and isinstance(target.value, ast.Name)
        and target.value.id == "self"
    )
