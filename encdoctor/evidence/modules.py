"""The module tree, and what is called without being in it."""

from __future__ import annotations

from dataclasses import dataclass

from encdoctor.model import Place


@dataclass(frozen=True)
class Unregistered:
    """A module that runs but is not in `named_modules()`; `held_in` is the attribute that hides it, "" if unknown."""

    owner: str
    class_name: str
    parameters: int
    held_in: str
    container: str
    place: Place


@dataclass(frozen=True)
class ModuleTree:
    """Modules by registration; `registered_parameters` counts what an optimiser would be given, `root` is the class."""

    unregistered: tuple[Unregistered, ...]
    registered_parameters: int
    root: Place = Place()
