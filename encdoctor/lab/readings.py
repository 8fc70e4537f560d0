"""What the source does with a module's attributes outside its constructor. Static, nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch import nn

from encdoctor.lab.source import class_tree
from encdoctor.model import Place
from encdoctor.target import Origin

BUILDS = ("__init__", "__post_init__", "reset_parameters", "init_weights", "_init_weights", "_reset_parameters")


def return_line(origin: Origin, model: nn.Module) -> Place | None:
    """The last return of the target's forward."""
    for cls in type(model).__mro__:
        found = class_tree(cls) if "forward" in vars(cls) else None
        if found is None:
            continue
        tree, file, before = found
        forward = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "forward"), None)
        returns = [n.lineno for n in ast.walk(forward) if isinstance(n, ast.Return)] if forward else []
        if returns:
            return Place("", cls.__name__, file, before + max(returns), origin.owns(cls.__module__, file))
    return None


def reads(origin: Origin, model: nn.Module, attribute: str, owner: str) -> list[Place]:
    """Lines outside constructors, in the classes of the model, where `.attribute` is read."""
    found = []
    classes = {cls: name for name, module in reversed(list(model.named_modules())) for cls in type(module).__mro__}
    for cls, name in classes.items():
        tree = class_tree(cls) if cls.__module__.partition(".")[0] != "torch" else None
        if tree is None:
            continue
        body, file, before = tree
        own = origin.owns(cls.__module__, file)
        at = owner if cls in type(model.get_submodule(owner)).__mro__ else name
        found += [Place(at, cls.__name__, file, before + line, own) for line in _lines(body, attribute)]
    return found


def _lines(tree: ast.ClassDef, attribute: str) -> Iterator[int]:
    for method in _methods(tree):
        for node in ast.walk(method):
            if isinstance(node, ast.Attribute) and node.attr == attribute and isinstance(node.ctx, ast.Load):
                yield node.lineno


def _methods(tree: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name not in BUILDS:
            yield node
