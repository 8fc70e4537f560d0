"""The configuration of a project: `encdoctor.toml`, or `[tool.encdoctor]` in a pyproject.toml.

The nearest one upwards from the working directory counts. Options have their command-line names; the paths in
it are relative to its folder. `[tool.encdoctor.targets.NAME]` names a target and what is known about it.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from encdoctor.options import (
    RUN_SETTINGS,
    TARGET_SETTINGS,
    Options,
    UsageError,
    checked_settings,
    layered,
    nearest,
    options_from,
)

_PATHS = ("json", "html", "weights")


@dataclass(frozen=True)
class Config:
    """The settings of a project, and those of its named targets, checked, with their paths resolved."""

    file: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    targets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def load(working_directory: Path) -> Config:
    """The nearest configuration upwards, or an empty one."""
    for folder in (working_directory, *working_directory.parents):
        own = _read(folder / "encdoctor.toml")
        if own is not None:
            return _config(folder / "encdoctor.toml", own, "", working_directory)
        table = (_read(folder / "pyproject.toml") or {}).get("tool", {}).get("encdoctor")
        if table is not None:
            return _config(folder / "pyproject.toml", table, "tool.encdoctor", working_directory)
    return Config()


def asked(config: Config, named: Sequence[str], given: Mapping[str, Any]) -> list[tuple[str, Options]]:
    """Each target with its options: the command line's over the target's own over the project's.

    `named` holds targets as they are written, or their names in the configuration; where it is empty, all
    that the configuration names are meant.
    """
    if not named and not config.targets:
        raise UsageError("name a target: `pkg.module:Attr` or `path/file.py:Attr`")
    return [_one(config, name, given) for name in named or config.targets]


def _one(config: Config, name: str, given: Mapping[str, Any]) -> tuple[str, Options]:
    own = dict(config.targets.get(name, {}))
    if not own and ":" not in name and not re.search(r"[\\/.]", name) and config.targets:
        raise UsageError(f"no target is called `{name}`: {nearest(name, dict(config.targets))}")
    text = own.pop("target", name)
    return text, options_from(layered(config.settings, own, given))


def _read(file: Path) -> dict[str, Any] | None:
    if not file.is_file():
        return None
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file.name} cannot be read: {error}") from error


def _config(file: Path, table: Any, prefix: str, working_directory: Path) -> Config:
    if not isinstance(table, dict):
        raise UsageError(f"{file.name}: [{prefix}] must be a table")
    settings = dict(table)
    targets = settings.pop("targets", {})
    if not isinstance(targets, dict):
        raise UsageError(f"{file.name}: [{_dotted(prefix, 'targets')}] must hold a table for each target")
    where = f"{file.name} [{prefix}]" if prefix else file.name
    known = {**TARGET_SETTINGS, **RUN_SETTINGS, "targets": dict}
    return Config(
        file,
        _resolved(checked_settings(settings, known, where), file.parent, working_directory),
        {name: _target(file, name, own, prefix, working_directory) for name, own in targets.items()},
    )


def _target(file: Path, name: str, own: Any, prefix: str, working_directory: Path) -> dict[str, Any]:
    where = f"{file.name} [{_dotted(prefix, f'targets.{name}')}]"
    if not isinstance(own, dict) or "target" not in own:
        raise UsageError(f'{where}: say what it is: target = "pkg.module:Attr" or "path/file.py:Attr"')
    settings = checked_settings(own, {"target": str, **TARGET_SETTINGS}, where)
    return _resolved(settings, file.parent, working_directory)


def _resolved(settings: dict[str, Any], folder: Path, working_directory: Path) -> dict[str, Any]:
    """The settings with their paths as seen from the working directory."""
    resolved = dict(settings)
    for name in _PATHS:
        if name in resolved and resolved[name] != "-":
            resolved[name] = _from_here(resolved[name], folder, working_directory)
    place, colon, attribute = resolved.get("target", "").rpartition(":")
    if place.endswith(".py"):
        resolved["target"] = _from_here(place, folder, working_directory) + colon + attribute
    return resolved


def _from_here(path: str, folder: Path, working_directory: Path) -> str:
    return os.path.relpath(folder / Path(path).expanduser(), working_directory)


def _dotted(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
