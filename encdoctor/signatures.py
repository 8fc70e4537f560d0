"""Reads a class without running it: the arguments of `forward`, what is written about them, how they are used.

Standard library only. What is found here is a candidate with a reason; trial calls decide.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# A definition's text ends here even where nothing else is defined after it.
LONGEST_DEFINITION = 600


@dataclass(frozen=True)
class Argument:
    """One argument of `forward`. `default` is meaningful where it is not `required`."""

    name: str
    required: bool
    default: Any = None
    annotation: str = ""
    positional_only: bool = False


@dataclass(frozen=True)
class Doc:
    """A text and where it stands: "docstring of forward", "docstring of Encoder", "comment", …"""

    where: str
    text: str


@dataclass(frozen=True)
class Reading:
    """What the source of a class says about calling it.

    `unpacked` maps an argument to the names its shape is unpacked into (`b, t = ids.shape`); `keys` to the string
    keys it is indexed with (`batch["input_ids"]`); `passes_on` names the submodules that get forward's `**kwargs`.
    """

    arguments: tuple[Argument, ...] = ()
    docs: tuple[Doc, ...] = ()
    unpacked: dict[str, tuple[str, ...]] = field(default_factory=dict)
    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    passes_on: tuple[str, ...] = ()
    takes_any: bool = False
    source: str = ""

    def argument(self, name: str) -> Argument | None:
        """The argument of that name, or None."""
        return next((a for a in self.arguments if a.name == name), None)

    def about(self, name: str, others: tuple[str, ...] = ()) -> Iterator[Doc]:
        """The passages that define `name`, the nearest to the code first."""
        names = tuple(a.name for a in self.arguments) + others
        for doc in self.docs:
            for text in definitions(doc.text, name, names):
                yield Doc(doc.where, text)


def read_class(cls: type, forward: Callable[..., Any] | None = None) -> Reading:
    """Reads `cls` and its `forward` (or another function that is called in its place)."""
    forward = forward or getattr(cls, "forward", None)
    if forward is None:
        return Reading()
    arguments, takes_any = _arguments(forward)
    source = source_of(cls)
    tree = parse(source)
    function = _method(tree, "forward")
    return Reading(
        arguments=arguments,
        docs=tuple(_docs(cls, forward, source, function, arguments)),
        unpacked=_unpacked(function) if function else {},
        keys=_keys(function) if function else {},
        passes_on=_passes_on(function) if function else (),
        takes_any=takes_any,
        source=source,
    )


def source_of(thing: Any) -> str:
    """The dedented source of a class or function, "" where there is none."""
    try:
        return textwrap.dedent(inspect.getsource(thing))
    except (OSError, TypeError, IndentationError):
        return ""


def parse(source: str) -> ast.Module:
    """The syntax tree, empty where the source cannot be parsed."""
    try:
        return ast.parse(source)
    except SyntaxError:
        return ast.Module(body=[], type_ignores=[])


def comments(source: str) -> list[tuple[int, str]]:
    """(line, text) of every comment."""
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                found.append((token.start[0], token.string.lstrip("#! ").strip()))
    except (tokenize.TokenError, IndentationError, SyntaxError):
        return found
    return found


def definitions(text: str, name: str, names: tuple[str, ...]) -> Iterator[str]:
    """The passages of a docstring that define `name`: from it to the next defined name or the next blank line."""
    starts = sorted((place, end, other) for other in {*names, name} for place, end in _defined_at(text, other))
    for place, end, other in starts:
        if other != name:
            continue
        following = [p for p, e, o in starts if p > place and o != name and e > end]
        stop = min([*following, place + LONGEST_DEFINITION])
        passage = text[end:stop]
        blank = re.search(r"\n\s*\n", passage)
        # a blank line ends a definition, except where the name alone stood above an indented block
        if blank and passage[: blank.start()].strip():
            passage = passage[: blank.start()]
        yield re.sub(r"\s+", " ", passage).strip()


def config_objects(model: object) -> list[Any]:
    """Objects on the model that hold its settings."""
    names = "config cfg hparams args conf params settings options".split()
    held = [getattr(model, name, None) for name in names]
    return [c for c in held if isinstance(c, Mapping) or (hasattr(c, "__dict__") and not callable(c))]


def as_mapping(holder: Any) -> Mapping[str, Any]:
    """A config's fields by name."""
    if isinstance(holder, Mapping):
        return holder
    fields = {n: getattr(holder, n) for n in getattr(type(holder), "__dataclass_fields__", ())}
    return {**{k: v for k, v in vars(type(holder)).items() if not k.startswith("__")}, **fields, **vars(holder)}


def _defined_at(text: str, name: str) -> Iterator[tuple[int, int]]:
    """(start, end) of the mentions of `name` that introduce it: `name:`, `name (`, `name is`, `name, other:`."""
    quoted = rf"(?<![\w.\-])[`*'\"]*{re.escape(name)}[`*'\"]*"
    alone = r"\s*(?:[:(\[=]|is\b|are\b|marks\b|has\b|holds\b|with\b|tells\b|says\b)"
    introduces = rf"(?={alone}|(?:\s*,\s*[`*]*\w+[`*]*)+\s*:)"
    for match in re.finditer(quoted + introduces, text):
        yield match.start(), match.end()


def _arguments(forward: Callable[..., Any]) -> tuple[tuple[Argument, ...], bool]:
    try:
        parameters = list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):
        return (), True
    if parameters and parameters[0].name in ("self", "_self"):
        parameters = parameters[1:]
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = [p for p in parameters if p.kind not in variable]
    arguments = tuple(
        Argument(
            p.name,
            p.default is inspect.Parameter.empty,
            None if p.default is inspect.Parameter.empty else p.default,
            "" if p.annotation is inspect.Parameter.empty else _annotation(p.annotation),
            p.kind is inspect.Parameter.POSITIONAL_ONLY,
        )
        for p in named
    )
    return arguments, len(named) < len(parameters)


def _annotation(annotation: Any) -> str:
    if isinstance(annotation, str):
        return annotation
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _own_bases(cls: type) -> Iterator[type]:
    """The class and those it derives from, up to torch's: a subclass without a docstring inherits one."""
    for base in cls.__mro__:
        if base.__module__.split(".")[0] in ("torch", "builtins"):
            return
        yield base


def _docs(
    cls: type, forward: Any, source: str, function: ast.FunctionDef | None, arguments: tuple[Argument, ...]
) -> Iterator[Doc]:
    if text := inspect.getdoc(forward):
        yield Doc("docstring of forward", text)
    documented = next((base for base in _own_bases(cls) if base.__dict__.get("__doc__")), None)
    if documented is not None:
        yield Doc(f"docstring of {documented.__name__}", inspect.cleandoc(documented.__dict__["__doc__"]))
    if function is not None:
        yield from _signature_comments(source, function, arguments)
    if text := getattr(cls.__dict__.get("__init__"), "__doc__", None):
        yield Doc("docstring of __init__", inspect.cleandoc(text))
    module = inspect.getmodule(cls)
    if module is not None and module.__doc__:
        yield Doc("docstring of the module", inspect.cleandoc(module.__doc__))


def _signature_comments(source: str, function: ast.FunctionDef, arguments: tuple[Argument, ...]) -> Iterator[Doc]:
    """Comments of the signature's lines and of the first statements, as "argument: comment"."""
    lines = source.splitlines()
    last = function.body[min(3, len(function.body) - 1)].lineno
    for line, text in comments(source):
        if not function.lineno - 2 <= line <= last or not text:
            continue
        code = lines[line - 1].split("#")[0]
        mentioned = [a.name for a in arguments if re.search(rf"\b{re.escape(a.name)}\b", code)]
        yield Doc("comment", f"{mentioned[0]}: {text}" if len(mentioned) == 1 else text)


def _method(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    for cls in tree.body:
        if isinstance(cls, ast.ClassDef):
            return next((n for n in cls.body if isinstance(n, ast.FunctionDef) and n.name == name), None)
    return next((n for n in tree.body if isinstance(n, ast.FunctionDef)), None)


def _unpacked(function: ast.FunctionDef) -> dict[str, tuple[str, ...]]:
    """Names that an argument's axes get: `b, t = x.shape`, `t = x.size(1)`, `n = len(x)`."""
    found: dict[str, dict[int, str]] = {}
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Tuple) and (owner := _shape_owner(value)):
            names = {i: e.id for i, e in enumerate(target.elts) if isinstance(e, ast.Name)}
            found.setdefault(owner, {}).update(names)
        elif isinstance(target, ast.Name) and (indexed := _axis_of(value)):
            found.setdefault(indexed[0], {}).setdefault(indexed[1], target.id)
    return {
        owner: tuple(names.get(i, "_") for i in range(max(names) + 1))
        for owner, names in found.items()
        if names and min(names) >= 0
    }


def _shape_owner(value: ast.expr) -> str:
    """`x` of `x.shape`, `x.size()` and `x.shape[:2]`."""
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice) and value.slice.lower is None:
        value = value.value
    if isinstance(value, ast.Call) and not value.args:
        value = value.func
    if isinstance(value, ast.Attribute) and value.attr in ("shape", "size") and isinstance(value.value, ast.Name):
        return value.value.id
    return ""


def _axis_of(value: ast.expr) -> tuple[str, int] | None:
    """(x, 1) of `x.shape[1]` and `x.size(1)`."""
    if isinstance(value, ast.Call) and len(value.args) == 1:
        owner, index = _shape_owner(value.func), value.args[0]
    elif isinstance(value, ast.Subscript):
        owner, index = _shape_owner(value.value), value.slice
    else:
        return None
    if owner and isinstance(index, ast.Constant) and isinstance(index.value, int):
        return owner, index.value
    return None


def _keys(function: ast.FunctionDef) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for node in ast.walk(function):
        name, key = None, None
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            name, key = node.value.id, node.slice
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and node.args
        ):
            name, key = getattr(node.func.value, "id", None), node.args[0]
        if name and isinstance(key, ast.Constant) and isinstance(key.value, str):
            found.setdefault(name, [])
            if key.value not in found[name]:
                found[name].append(key.value)
    return {name: tuple(keys) for name, keys in found.items()}


def _passes_on(function: ast.FunctionDef) -> tuple[str, ...]:
    """Attributes of self that are called with forward's own `**kwargs`."""
    if function.args.kwarg is None:
        return ()
    kwargs = function.args.kwarg.arg
    return tuple(
        node.func.attr
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "self"
        and any(k.arg is None and isinstance(k.value, ast.Name) and k.value.id == kwargs for k in node.keywords)
    )
