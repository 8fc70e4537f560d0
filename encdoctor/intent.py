"""What the author says he meant, with where he says it.

Behaviour alone cannot tell a CLIP text tower from an encoder that got a causal mask by mistake. Sources, strongest
first: the user's options and configuration, constructor arguments and config values, docstrings and comments of
signatures, names that the source reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class What(StrEnum):
    """What can be declared."""

    CAUSAL = "causal"
    WINDOW = "window"
    PREFIX = "prefix"
    SHARED = "shared"
    FROZEN = "frozen"
    NO_POSITIONS = "no-positions"
    LEFT_PADDING = "left-padding"
    HALF = "half"


@dataclass(frozen=True)
class Declared:
    """One thing that was meant. `value` is True, False or a number (a window's width); `source` says where."""

    what: What
    value: bool | int | str
    source: str


@dataclass(frozen=True)
class Intent:
    """All that was declared. `installed` tells that the target lies in an installed package, not in a project."""

    declared: tuple[Declared, ...] = ()
    installed: bool = False

    def __iter__(self) -> Iterator[Declared]:
        return iter(self.declared)

    def of(self, what: What) -> Declared | None:
        """The strongest declaration of `what`, or None."""
        return next((d for d in self.declared if d.what is what), None)

    def says(self, what: What) -> bool:
        """Whether `what` was declared with a value that is not False."""
        declared = self.of(what)
        return declared is not None and declared.value is not False


def read_intent(model, origin, options):  # type: ignore[no-untyped-def]
    """Placeholder until the reader of sources is in place."""
    doc = (type(model).__doc__ or "").lower()
    found = [Declared(What(o.split("=")[0]), True, "option") for o in options]
    if "causal" in doc or "autoregressive" in doc:
        found.append(Declared(What.CAUSAL, True, "docstring"))
    return Intent(tuple(found), origin.installed)
