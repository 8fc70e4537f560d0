"""What turning queries and keys by their position does to the scores."""

from __future__ import annotations

from dataclasses import dataclass

from encdoctor.model import Place


@dataclass(frozen=True)
class Rotary:
    """The first attention site for a sentence of one token repeated.

    `found` tells that positions enter between the projections and the product, by multiplication. `queries`, `keys` and
    `values` tell which of them vary with the position. `deviation` is how far q·k at one distance differs between
    positions, `stretch` how far lengths of q or k do, both relative; `values_change` is how far values vary. `tables`
    and `turns` are "pairs" or "halves": how the angles are laid out, and which features are turned together.
    """

    found: bool
    why: str = ""
    queries: bool = False
    keys: bool = False
    values: bool = False
    deviation: float = 0.0
    stretch: float = 0.0
    values_change: float = 0.0
    tables: str = ""
    turns: str = ""
    turned_at: tuple[Place, ...] = ()
    multiplied_at: tuple[Place, ...] = ()
    scores_at: tuple[Place, ...] = ()
