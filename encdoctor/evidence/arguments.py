"""Constructor arguments that go nowhere, read off the source."""

from __future__ import annotations

from dataclasses import dataclass

from encdoctor.model import Place


@dataclass(frozen=True)
class LostArgument:
    """An argument of a module's constructor that is read nowhere (`target` ""), or is not passed on to `target`.

    `target` is a class that is built in that constructor, takes an argument of that name, and falls back to its own
    default (`used`) instead of what the outer one has (`given`).
    """

    owner: str
    class_name: str
    name: str
    target: str
    given: str
    used: str
    place: Place


@dataclass(frozen=True)
class Arguments:
    """All that were found in the target's own classes; `classes` counts those whose source could be read."""

    lost: tuple[LostArgument, ...]
    classes: int
