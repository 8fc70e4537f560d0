"""What happened when the model was called in a few ordinary ways."""

from __future__ import annotations

import re
from dataclasses import dataclass

from encdoctor.model import Place

# torch's own words, and the rule that they belong to
KNOWN_TEXTS = (
    (re.compile(r"view size is not compatible with input tensor's size and stride"), "view-on-noncontiguous"),
    (
        re.compile(
            r"shape of the [23]D attn_mask|Expected key_padd\w+_mask.shape|"
            r"must match the (existing )?size|is invalid for input of size|same number of dimensions"
        ),
        "mask-rank-broadcast",
    ),
)


@dataclass(frozen=True)
class Raised:
    """An exception from a forward. `places` are the target's own lines, the innermost first.

    `inside_torch` tells that the exception came out of a torch module that the target merely calls; `operation` and
    `shapes` name the ATen operation that refused, where it was one.
    """

    kind: str
    text: str
    places: tuple[Place, ...]
    situation: str
    inside_torch: bool = False
    operation: str = ""
    shapes: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def plain(cls, kind: str, text: str) -> Raised:
        """Without a place."""
        return cls(kind, text, (), "")

    @property
    def rule(self) -> str:
        """The slug of the rule that names this exception by its text, "" where none does."""
        return next((slug for pattern, slug in KNOWN_TEXTS if pattern.search(self.text)), "")

    @property
    def summary(self) -> str:
        """One line for reasons."""
        return f"forward raised {self.text}" if self.kind != "no-output" else self.text


@dataclass(frozen=True)
class Tried:
    """One call: its name, what was passed, what was raised, and how far padding moved real outputs there."""

    name: str
    situation: str
    raised: Raised | None
    shape: tuple[int, ...] = ()
    leak: float = 0.0


@dataclass(frozen=True)
class ForwardRuns:
    """Ordinary calls that a caller would make: padded, without padding, batch equal to length, strided input, …"""

    tried: tuple[Tried, ...]

    def named(self, name: str) -> Tried | None:
        """The call of that name, None if it was not made."""
        return next((t for t in self.tried if t.name == name), None)

    @property
    def usual(self) -> Raised | None:
        """What the most usual call raised, if it did."""
        for name in ("padded", "plain"):
            tried = self.named(name)
            if tried is not None and tried.raised is not None:
                return tried.raised
        return None
