"""A run as strict JSON, and back. The format is `encdoctor/run-1`; schema.json beside this file describes it.

The same content gives the same bytes: floats keep three significant digits, mappings are sorted by key (a
rule's sections keep their order, which is the reader's), and what is not finite is written as "nan", "inf" or
"-inf". A limit's unit is not written: it is the unit of what was measured, and is read back from there.
"""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from numbers import Integral, Real
from typing import Any

from encdoctor.model import Limit, Run

_NOT_FINITE = ("nan", "inf", "-inf")
_RUN_ORDER = ("schema", "version", "environment", "seconds", "complete", "rules", "reports")


class UnreadableReport(ValueError):
    """The text is no report that this version reads; the message is one sentence that says why."""


def dump(run: Run) -> str:
    """The run as JSON text. ASCII, so that no terminal, pipe or locale can spoil it."""
    return json.dumps(_plain(run, "run"), indent=1, allow_nan=False) + "\n"


def load(text: str) -> Run:
    """The run that `dump` wrote, or `UnreadableReport`.

    In the free-form parts (contract, anatomy, evidence, …) what is not finite stays a string.
    """
    data = _parse(text)
    _recognise(data)
    run = _read(Run, data, "")
    assert isinstance(run, Run)
    return run


# ---- writing -----------------------------------------------------------------------------------------------


def _plain(value: Any, path: str) -> Any:
    if isinstance(value, str):
        return _text(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return _rounded(float(value))
    if isinstance(value, list | tuple):
        return [_plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        return _mapping(value, path)
    if is_dataclass(value):
        return _record(value, path)
    raise TypeError(f"{path} holds a {type(value).__name__}, which is no plain data")


def _text(value: str) -> str:
    """Half a surrogate pair (from an undecodable file name) is no text and would break UTF-8 writers."""
    return str(value).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _rounded(value: float) -> float | str:
    if not math.isfinite(value):
        return str(value)
    rounded = float(f"{value:.3g}") + 0.0  # + 0.0 makes -0.0 a plain zero
    return rounded if math.isfinite(rounded) else value  # the largest float64 rounds up to infinity


def _mapping(value: Mapping[Any, Any], path: str) -> dict[str, Any]:
    named = {_text(str(key)): item for key, item in value.items()}
    keys = named if path.endswith(".sections") else sorted(named)
    return {key: _plain(named[key], f"{path}.{key}") for key in keys}


def _record(value: Any, path: str) -> dict[str, Any]:
    keys = _keys(type(value))
    return {key: _plain(getattr(value, name), f"{path}.{key}") for name, key in keys.items()}


def _keys(kind: Any) -> dict[str, str]:
    """The JSON key of each field that is written."""
    if kind is Run:
        return {name: name for name in _RUN_ORDER}
    names = [field.name for field in fields(kind)]
    if kind is Limit:
        names.remove("unit")
    return {name: "class" if name == "class_name" else name for name in names}


# ---- reading -----------------------------------------------------------------------------------------------


def _parse(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise UnreadableReport(
            f"this is no encdoctor report: it is not JSON (line {error.lineno}: {error.msg})"
        ) from None
    except (ValueError, RecursionError) as error:
        raise UnreadableReport(f"this is no encdoctor report: it is not strict JSON ({error})") from None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _recognise(data: Any) -> None:
    schema = data.get("schema") if isinstance(data, dict) else None
    if not isinstance(schema, str) or not schema.startswith("encdoctor/"):
        raise UnreadableReport('this is no encdoctor report: it is JSON, but has no "schema": "encdoctor/…"')
    if schema != Run.schema:
        writer = str(data.get("version", "of its own version"))
        raise UnreadableReport(
            f"this report has the format {schema[:60]}, and this encdoctor reads {Run.schema} only: "
            f"render it with encdoctor {writer[:40]}, which wrote it"
        )


def _damaged(path: str, what: str) -> UnreadableReport:
    return UnreadableReport(f"the report is damaged at {path.lstrip('.') or 'its root'}: {what}")


def _read(kind: Any, data: Any, path: str) -> Any:
    """`data` as a `kind`, which is an annotation of the data model."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return data
    if origin is types.UnionType:  # only `X | None` occurs
        return None if data is None else _read(arguments[0], data, path)
    if origin is list:
        return [_read(arguments[0], item, f"{path}[{i}]") for i, item in enumerate(_is(list, data, path))]
    if origin is tuple:
        return _read_tuple(arguments, data, path)
    if origin in (dict, Mapping):
        items = _is(dict, data, path).items()
        return {key: _read(arguments[1], item, f"{path}.{key}") for key, item in items}
    if is_dataclass(kind):
        return _read_record(kind, data, path)
    if issubclass(kind, Enum):
        return _read_enum(kind, data, path)
    return _read_float(data, path) if kind is float else _is(kind, data, path)


def _is(kind: type, data: Any, path: str) -> Any:
    if isinstance(data, kind) and (kind is bool or not isinstance(data, bool)):
        return data
    raise _damaged(path, f"{_shown(data)} stands where a {_JSON_NAMES[kind]} is expected")


_JSON_NAMES = {bool: "true or false", int: "whole number", str: "string", list: "list", dict: "mapping"}


def _shown(data: Any) -> str:
    text = json.dumps(data)
    return text if len(text) <= 40 else text[:40] + "…"


def _read_float(data: Any, path: str) -> float:
    if data in _NOT_FINITE:
        return float(data)
    if isinstance(data, int | float) and not isinstance(data, bool):
        return float(data)
    raise _damaged(path, f"{_shown(data)} is no number")


def _read_enum(kind: type[Enum], data: Any, path: str) -> Enum:
    try:
        return kind(data)
    except ValueError:
        choices = ", ".join(str(member.value) for member in kind)
        raise _damaged(path, f"{_shown(data)} is none of {choices}") from None


def _read_tuple(kinds: tuple[Any, ...], data: Any, path: str) -> tuple[Any, ...]:
    if len(_is(list, data, path)) != len(kinds):
        raise _damaged(path, f"{len(kinds)} items are expected, not {len(data)}")
    pairs = zip(kinds, data, strict=True)
    return tuple(_read(kind, item, f"{path}[{index}]") for index, (kind, item) in enumerate(pairs))


def _read_record(kind: Any, data: Any, path: str) -> Any:
    keys = _keys(kind)
    _same_keys(set(keys.values()), set(_is(dict, data, path)), path)
    hints = _hints(kind)
    values = {name: _read(hints[name], data[key], f"{path}.{key}") for name, key in keys.items()}
    if kind is Limit:
        values["unit"] = ""
    record = kind(**values)
    if "limit" in values and "measured" in values:
        limit = values["limit"]
        record.limit = Limit(limit.value, values["measured"].unit, limit.because)
    return record


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _same_keys(expected: set[str], found: set[str], path: str) -> None:
    if missing := sorted(expected - found):
        raise _damaged(path, f"{missing[0]!r} is missing")
    if unknown := sorted(found - expected):
        raise _damaged(path, f"{unknown[0][:40]!r} is unknown")
