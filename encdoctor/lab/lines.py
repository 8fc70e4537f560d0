"""Lines of the target's source that compute sines and powers: where a position table is made, be it torch or NumPy."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

from encdoctor.lab.lab import Lab
from encdoctor.model import Place

POWERS = {"exp", "pow", "power", "float_power", "exp2", "logspace"}
WAVES = {"sin", "cos", "sin_", "cos_", "sincos", "polar"}


def wave_lines(lab: Lab, cls: type, module: str) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
    """(lines that raise to a power, lines that call sine or cosine) in the function of `cls`'s file that does both.

    Functions of the class itself come first.
    """
    try:
        file = inspect.getsourcefile(cls) or ""
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, TypeError, SyntaxError, ValueError):
        return (), ()
    own = lab.origin.owns(cls.__module__, file)

    def places(lines: list[int]) -> tuple[Place, ...]:
        return tuple(Place(module, cls.__name__, file, line, own) for line in lines)

    for function in sorted(_functions(tree), key=lambda pair: pair[0] != cls.__name__):
        waves = sorted({n.lineno for n in ast.walk(function[1]) if isinstance(n, ast.Call) and _calls(n, WAVES)})
        if waves:
            powers = sorted({n.lineno for n in ast.walk(function[1]) if isinstance(n, ast.expr) and _is_power(n)})
            return places(powers), places(waves)
    return (), ()


def _functions(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """(name of the class around it, or "", function), outermost functions only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield "", node
        elif isinstance(node, ast.ClassDef):
            yield from ((node.name, inner) for inner in node.body if isinstance(inner, ast.FunctionDef))


def _calls(node: ast.Call, names: set[str]) -> bool:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in names


def _is_power(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return _calls(node, POWERS)
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)
