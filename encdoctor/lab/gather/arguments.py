"""Reads constructors: which arguments are used, and which are passed on to the modules that are built inside."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from encdoctor.evidence.arguments import Arguments, LostArgument
from encdoctor.lab.lab import Lab
from encdoctor.lab.source import class_tree
from encdoctor.model import Place
from encdoctor.signatures import config_objects

# Taken for the sake of a common interface; nothing is lost with them.
INTERFACE = {"device", "dtype", "name", "args", "kwargs", "config", "verbose", "factory_kwargs"}
UNUSED_SAID = re.compile(r"unused|ignored|not used|compatib|deprecated|has no effect", re.IGNORECASE)


def gather_arguments(lab: Lab) -> Arguments:
    """Every class of the model that the target's author wrote, once."""
    lost: list[LostArgument] = []
    seen: set[type] = set()
    for owner, module in lab.model.named_modules():
        cls = type(module)
        if cls in seen or cls.__module__.startswith("torch.") or "__init__" not in vars(cls):
            continue
        found = class_tree(cls)
        if found is None:
            continue
        seen.add(cls)
        tree, file, before = found
        init = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
        if init is not None:
            base = Place(owner, cls.__name__, file, before, lab.origin.owns(cls.__module__, file))
            lost += [*_unread(cls, init, base, inspect.getsource(cls)), *_kept_back(lab, module, init, base)]
    lost += _unread_settings(lab, seen)
    return Arguments(tuple(lost), len(seen))


def _unread_settings(lab: Lab, classes: set[type]) -> Iterator[LostArgument]:
    """Fields of a configuration of the author's own that no line of his modules reads."""
    for config in config_objects(lab.model):
        source = "\n".join(map(_module_source, _readers(type(config), classes)))
        found = class_tree(type(config)) if not isinstance(config, Mapping) else None
        if found is None or not lab.origin.owns(type(config).__module__, found[1]):
            continue
        tree, file, before = found
        base = Place("", tree.name, file, before, True)
        for name, line in _fields(tree):
            read = re.search(rf"\.{name}\b(?!\s*=[^=])|[\"']{name}[\"']", source) is not None
            if not read and name not in INTERFACE and not _comment_about(inspect.getsource(type(config)), name):
                value = repr(getattr(config, name, None))
                yield LostArgument("", tree.name, name, "", value, "", _at(base, line))


def _readers(config: type, classes: set[type]) -> set[str]:
    """Modules that may read a configuration: those of the model's classes, and all of the configuration's package."""
    package = config.__module__.rpartition(".")[0]
    beside = {name for name in sys.modules if package and name.startswith(f"{package}.")}
    return beside | {cls.__module__ for cls in classes} | {config.__module__}


def _fields(tree: ast.ClassDef) -> Iterator[tuple[str, int]]:
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node.lineno


def _module_source(name: str) -> str:
    module = sys.modules.get(name)
    try:
        return inspect.getsource(module) if module is not None else ""
    except (OSError, TypeError):
        return ""


def _unread(cls: type, init: ast.FunctionDef, base: Place, source: str) -> Iterator[LostArgument]:
    """Arguments whose name is read nowhere in the constructor."""
    names = {node.id for node in ast.walk(init) if isinstance(node, ast.Name)}
    if "locals" in names or "vars" in names:
        return
    for argument in _arguments(init):
        said = _comment_about(source, argument.arg)
        if argument.arg not in names | INTERFACE and not argument.arg.startswith("_") and not said:
            given = _default_of(cls, argument.arg)
            yield LostArgument(base.module, cls.__name__, argument.arg, "", given, "", _at(base, argument.lineno))


def _comment_about(source: str, name: str) -> bool:
    """Whether a line that mentions the argument says that it is unused."""
    return any(re.search(rf"\b{name}\b", line) and UNUSED_SAID.search(line) for line in source.splitlines())


def _kept_back(lab: Lab, module: nn.Module, init: ast.FunctionDef, base: Place) -> Iterator[LostArgument]:
    """Arguments that a class built here takes by the same name, and is not given by any call."""
    scope = vars(sys.modules.get(type(module).__module__, object()))
    children = {type(child) for child in module.modules() if child is not module}
    calls = [
        (cls, node)
        for node in ast.walk(init)
        if isinstance(node, ast.Call) and (cls := _class_called(node, scope)) in children and cls is not None
    ]
    for argument in _arguments(init):
        name = argument.arg
        takers = [(cls, node) for cls, node in calls if _has_default(cls, name)]
        if not takers or name in INTERFACE or any(_mentions(node, name) for _, node in calls):
            continue
        cls, node = takers[0]
        given, used = _value(module, name), _default(cls, name)
        if given != used:
            place = _at(base, node.lineno)
            yield LostArgument(base.module, base.class_name, name, cls.__name__, repr(given), repr(used), place)


def _arguments(init: ast.FunctionDef) -> list[ast.arg]:
    arguments = init.args
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs][1:]


def _class_called(node: ast.Call, scope: dict[str, Any] | Any) -> type | None:
    function = node.func
    if isinstance(function, ast.Name):
        found = scope.get(function.id)
    elif isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        found = getattr(scope.get(function.value.id), function.attr, None)
    else:
        return None
    return found if isinstance(found, type) and issubclass(found, nn.Module) else None


def _mentions(call: ast.Call, name: str) -> bool:
    """Whether a call is given the argument, by its name or as an attribute, or takes what cannot be looked into."""
    if any(isinstance(arg, ast.Starred) for arg in call.args) or any(k.arg is None for k in call.keywords):
        return True
    if any(keyword.arg == name for keyword in call.keywords):
        return True
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    parts = [part for value in given for part in ast.walk(value)]
    return any(
        (isinstance(p, ast.Name) and p.id == name) or (isinstance(p, ast.Attribute) and p.attr == name) for p in parts
    )


def _has_default(cls: type, name: str) -> bool:
    return _default(cls, name) is not inspect.Parameter.empty


def _default(cls: type, name: str) -> Any:
    try:
        parameter = inspect.signature(cls.__init__).parameters.get(name)  # type: ignore[misc]
    except (TypeError, ValueError):
        return inspect.Parameter.empty
    return inspect.Parameter.empty if parameter is None else parameter.default


def _default_of(cls: type, name: str) -> str:
    default = _default(cls, name)
    return "" if default is inspect.Parameter.empty else repr(default)


def _value(module: nn.Module, name: str) -> Any:
    """What the outer module was given: its attribute of that name, else the default."""
    value = vars(module).get(name, _default(type(module), name))
    return value if isinstance(value, bool | int | float | str) or value is None else _default(type(module), name)


def _at(base: Place, line: int) -> Place:
    return Place(base.module, base.class_name, base.file, base.line + line, base.own)
