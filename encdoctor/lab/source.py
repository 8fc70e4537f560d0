"""Reads the target's own source: where an attribute is set, which line says what. Static, nothing is run."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap

from torch import nn

from encdoctor.model import Place
from encdoctor.target import Origin


def class_tree(cls: type) -> tuple[ast.ClassDef, str, int] | None:
    """(syntax tree, file, first line − 1) of a class, None where its source is not to be had. Parsed once."""
    return _parsed(cls)


@functools.cache
def _parsed(cls: type) -> tuple[ast.ClassDef, str, int] | None:
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
        found = None if cls.__module__.startswith("torch.") else class_tree(cls)
        if found is None:
            continue
        tree, file, before = found
        for node in ast.walk(tree):
            if _sets(node, attribute):
                own = origin.owns(cls.__module__, file)
                return Place(owner, cls.__name__, file, before + node.lineno, own)  # type: ignore[attr-defined]
    return None


def nearest_line(origin: Origin, model: nn.Module, name: str) -> Place:
    """Where a part is set: its own attribute, or that of the module that holds it, else the class of the target.

    The target's own lines come before those of what it calls.
    """
    found = []
    path = name
    while path:
        owner, _, attribute = path.rpartition(".")
        place = attribute_line(origin, model, owner, attribute) if _is_module(model, owner) else None
        if place is not None and place.own:
            return place
        found.append(place)
        path = owner
    return next((place for place in found if place is not None), class_place(origin, model))


def later_line(origin: Origin, model: nn.Module, name: str) -> Place:
    """Where a part that is not there when the model is built is set: in a method that building does not run."""
    parts = name.split(".")
    for depth in range(len(parts)):
        owner = ".".join(parts[:depth])
        for cls in type(model.get_submodule(owner)).__mro__ if _is_module(model, owner) else ():
            source = None if cls.__module__.startswith("torch.") else class_tree(cls)
            runs = building(type(model.get_submodule(owner)))
            methods = [n for n in source[0].body if isinstance(n, ast.FunctionDef)] if source else []
            for node in (n for m in methods if m.name not in runs for n in ast.walk(m)):
                if source and _sets(node, parts[depth]):
                    own = origin.owns(cls.__module__, source[1])
                    return Place(owner, cls.__name__, source[1], source[2] + node.lineno, own)  # type: ignore[attr-defined]
    return nearest_line(origin, model, name)


def frozen_line(origin: Origin, model: nn.Module, name: str) -> Place:
    """The line on which a part's gradient is switched off, else where the part is set, else the class.

    A line that names the part comes first; the only such line of a class on the way to it will do.
    """
    parts = name.split(".")
    for depth in range(len(parts), -1, -1):
        owner = ".".join(parts[:depth])
        lines = _freezing(origin, model, owner) if _is_module(model, owner) else []
        named = [place for place, names in lines if not parts[depth:] or names & set(parts[depth:])]
        if named or len(lines) == 1:
            return (named or [lines[0][0]])[0]
    return nearest_line(origin, model, name)


def _freezing(origin: Origin, model: nn.Module, owner: str) -> list[tuple[Place, set[str]]]:
    """The statements of a module's classes that switch gradients off, with the names that stand in them."""
    found = []
    for cls in type(model.get_submodule(owner)).__mro__:
        source = None if cls.__module__.startswith("torch.") else class_tree(cls)
        if source is None:
            continue
        tree, file, before = source
        own = origin.owns(cls.__module__, file)
        for node in ast.walk(tree):
            if isinstance(node, ast.stmt) and _freezes(node):
                found.append((Place(owner, cls.__name__, file, before + node.lineno, own), _names(node)))
    return found


def _is_module(model: nn.Module, name: str) -> bool:
    try:
        model.get_submodule(name)
    except AttributeError:
        return False
    return True


def _freezes(node: ast.stmt) -> bool:
    """Whether a simple statement sets requires_grad to False, by assignment, call or keyword."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.If | ast.With | ast.For):
        return False
    text = ast.unparse(node).replace(" ", "")
    return any(said in text for said in ("requires_grad_(False)", "requires_grad=False", "freeze=True"))


def _names(node: ast.stmt) -> set[str]:
    nodes = list(ast.walk(node))
    return {n.attr for n in nodes if isinstance(n, ast.Attribute)} | {n.id for n in nodes if isinstance(n, ast.Name)}


# ---- methods ---------------------------------------------------------------------------------------------------


def building(cls: type) -> set[str]:
    """The methods that run while an instance is built: those that `__init__` reaches."""
    return _reached(_methods(cls), "__init__")


def is_read(cls: type, attribute: str, through: bool = False) -> bool:
    """Whether a method that is not only part of building reads `.attribute`; `through` another object than self."""
    methods = _methods(cls)
    only_building = building(cls) - _reached(methods, "forward")
    nodes = [n for name, bodies in methods.items() if name not in only_building for b in bodies for n in ast.walk(b)]
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr == attribute and isinstance(node.ctx, ast.Load):
            is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
            if not (through and is_own):
                return True
        if isinstance(node, ast.Constant) and node.value == attribute:
            return True
    return False


def _methods(cls: type) -> dict[str, list[ast.FunctionDef]]:
    """All bodies of each method, overridden ones too, which `super()` may call."""
    methods: dict[str, list[ast.FunctionDef]] = {}
    for base in cls.__mro__:
        found = None if base.__module__.startswith("torch.") or base is object else class_tree(base)
        for node in found[0].body if found else []:
            if isinstance(node, ast.FunctionDef):
                methods.setdefault(node.name, []).append(node)
    return methods


def _reached(methods: dict[str, list[ast.FunctionDef]], start: str) -> set[str]:
    reached, todo = set(), [start]
    while todo:
        name = todo.pop()
        if name in reached or name not in methods:
            continue
        reached.add(name)
        todo += [n.attr for body in methods[name] for n in ast.walk(body) if isinstance(n, ast.Attribute)]
    return reached


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
