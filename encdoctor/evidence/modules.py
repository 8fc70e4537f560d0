"""The module tree, and what is called without being in it."""

from __future__ import annotations

from dataclasses import dataclass

from encdoctor.model import Place


@dataclass(frozen=True)
class Unregistered:
    """A module that runs but is not in `named_modules()`; `held_in` is the attribute that hides it, "" if unknown.

    `created` tells that each forward runs another such module: it is made there. `place` is the line that calls it, or
    sets what holds it.
    """

    owner: str
    class_name: str
    parameters: int
    held_in: str
    container: str
    place: Place
    created: bool = False


@dataclass(frozen=True)
class LateParameter:
    """A parameter that is not there when the model is built and is registered by the first forward, or is made in each.

    `name` is "" for one that is not registered.
    """

    name: str
    parameters: int
    place: Place


@dataclass(frozen=True)
class ModuleTree:
    """Modules by registration; `registered_parameters` counts what an optimiser would be given, `root` is the class."""

    unregistered: tuple[Unregistered, ...]
    registered_parameters: int
    root: Place = Place()
    late: tuple[LateParameter, ...] = ()
