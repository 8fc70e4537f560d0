"""Finds the checks: one module a check, one folder a family, and whatever other packages add.

A check's module holds `RULE`, a function `check`, and the rule's documentation as its docstring. Packages add
modules of the same shape by the entry point group `encdoctor.checks`. Nothing here loads torch.
"""

from __future__ import annotations

import inspect
import pkgutil
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any

from encdoctor.model import Rule, RuleText, Verdict
from encdoctor.options import UsageError

GROUP = "encdoctor.checks"

# The docstring's headings, and the short names under which a report keeps what stands below them.
SECTIONS = {
    "What it looks at": "what",
    "Why it matters": "why",
    "What you see": "see",
    "How to fix it": "fix",
    "When it does not apply": "silent",
    "Where it points": "where",
    "References": "references",
}


@dataclass(frozen=True)
class Check:
    """A rule, its documentation, and the function that decides it.

    `needs` maps the function's parameters to the evidence types (or `CallContract`, `Intent`) that they are
    annotated with; `X | None` stands as it is annotated.
    """

    rule: Rule
    family: str
    text: RuleText
    function: Callable[..., Verdict]
    needs: Mapping[str, Any]


@dataclass(frozen=True)
class Catalogue:
    """All checks by code, and a sentence for each one of another package that could not be used."""

    checks: dict[str, Check]
    faults: tuple[str, ...]


class FaultyCheck(Exception):
    """A module that does not have the shape of a check."""


def discover() -> dict[str, Check]:
    """All checks by code, sorted."""
    return dict(catalogue().checks)


def faults() -> tuple[str, ...]:
    """What is wrong with checks that other packages add; those are left out."""
    return catalogue().faults


@cache
def catalogue() -> Catalogue:
    """Walks the built-in families, then the entry points. Found once a process."""
    checks: dict[str, Check] = {}
    for family, name in _built_in():
        _add(checks, read_check(import_module(name), family))
    sentences = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        # whatever another package's code raises at import must not take the built-in checks along
        try:
            _add(checks, _from_entry(entry))
        except (Exception, SystemExit) as error:
            sentences.append(f"the check {entry.name!r} ({entry.value}) is left out: {type(error).__name__}: {error}")
    return Catalogue(dict(sorted(checks.items())), tuple(sentences))


def select(checks: Mapping[str, Check], select: Iterable[str], ignore: Iterable[str]) -> dict[str, Check]:
    """The checks named by `select` (all where it is empty) less those named by `ignore`.

    A name is a code (`MSK002`), a slug, a code's prefix (`MSK`) or a family (`masks`).
    """
    wanted = [code for name in select for code in _named(checks, name)] or list(checks)
    unwanted = {code for name in ignore for code in _named(checks, name)}
    return {code: checks[code] for code in checks if code in wanted and code not in unwanted}


def named(checks: Mapping[str, Check], name: str) -> Check | None:
    """The check with this code or slug, None where there is none."""
    return next((c for c in checks.values() if name.upper() == c.rule.code or name.lower() == c.rule.slug), None)


def find(checks: Mapping[str, Check], name: str) -> Check:
    """The one check with this code or slug."""
    found = named(checks, name)
    if found is None:
        raise UsageError(_unknown(checks, name))
    return found


def read_check(module: ModuleType, family: str) -> Check:
    """The check that a module holds."""
    rule, function = getattr(module, "RULE", None), getattr(module, "check", None)
    if not isinstance(rule, Rule):
        raise FaultyCheck(f"{module.__name__} has no RULE of type encdoctor.model.Rule")
    if not inspect.isfunction(function):
        raise FaultyCheck(f"{module.__name__} has no function `check`")
    return Check(rule, family, _text(rule, family, module.__doc__ or ""), function, _needs(function))


def parse_docstring(docstring: str) -> tuple[str, dict[str, str]]:
    """The summary, and what stands under each heading, by the heading's short name."""
    lines = inspect.cleandoc(docstring).splitlines()
    summary = lines[0].strip() if lines else ""
    blocks: dict[str, list[str]] = {}
    key = ""
    for line in lines[1:]:
        if line.strip() in SECTIONS and not line.startswith(" "):
            key = SECTIONS[line.strip()]
            blocks[key] = []
        elif key:
            blocks[key].append(line)
    return summary, {key: inspect.cleandoc("\n".join(["", *block])).strip() for key, block in blocks.items()}


def _built_in() -> Iterator[tuple[str, str]]:
    """(family, module name) of every check in the package."""
    package = import_module("encdoctor.checks")
    for family in pkgutil.iter_modules(package.__path__):
        if not family.ispkg:
            continue
        folder = import_module(f"{package.__name__}.{family.name}")
        for module in pkgutil.iter_modules(folder.__path__):
            if not module.name.startswith("_"):
                yield family.name, f"{folder.__name__}.{module.name}"


def _from_entry(entry: EntryPoint) -> Check:
    module = entry.load()
    if not isinstance(module, ModuleType):
        raise FaultyCheck("the entry point must name a module")
    return read_check(module, str(getattr(module, "FAMILY", entry.name)))


def _add(checks: dict[str, Check], check: Check) -> None:
    for other in checks.values():
        if check.rule.code == other.rule.code or check.rule.slug == other.rule.slug:
            raise FaultyCheck(f"{check.rule.code} {check.rule.slug} is taken by {other.rule.code} {other.rule.slug}")
    checks[check.rule.code] = check


def _text(rule: Rule, family: str, docstring: str) -> RuleText:
    summary, sections = parse_docstring(docstring)
    return RuleText(rule.slug, family, rule.severity, summary, sections)


def _needs(function: Callable[..., Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(function)
    names = inspect.signature(function).parameters
    missing = [name for name in names if name not in hints]
    if missing:
        raise FaultyCheck(f"the parameter `{missing[0]}` of `check` is not annotated with the evidence it needs")
    return {name: hints[name] for name in names}


def _named(checks: Mapping[str, Check], name: str) -> list[str]:
    """The codes of the checks that `name` names; never empty."""
    lower, upper = name.lower(), name.upper()
    codes = [
        code
        for code, check in checks.items()
        if lower in (check.rule.slug, check.family) or (upper and code.startswith(upper))
    ]
    if not codes:
        raise UsageError(_unknown(checks, name))
    return codes


def _unknown(checks: Mapping[str, Check], name: str) -> str:
    known = {word.lower(): word for check in checks.values() for word in _names(check)}
    near = get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean `{known[near[0]]}`?" if near else "`encdoctor rules` lists them all"
    return f"no rule or family is called `{name}`: {hint}"


def _names(check: Check) -> tuple[str, ...]:
    return check.rule.code, check.rule.slug, check.family, check.rule.code.rstrip("0123456789")
