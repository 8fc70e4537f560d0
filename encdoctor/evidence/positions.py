"""What positions do to the outputs, and what is added for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from encdoctor.model import Place


@dataclass(frozen=True)
class Order:
    """What happens to outputs when the tokens of a full batch are permuted, and when all its rows hold one sentence.

    `permuted` is how far outputs are from the permuted outputs (0: order plays no role), `rows` how far the rows
    of equal
    sentences differ, both relative to the largest output; `noise` is what round-off may do. `key` is the operation
    that first gives a vector for each token, `first` its line, `projected` tells that it is a lookup or a projection to
    another width than the input's; `differ_keys` and `differ` are the operation, and its line,
    after which rows of equal sentences differ.
    """

    measured: bool
    why: str = ""
    permuted: float = 0.0
    rows: float = 0.0
    noise: float = 0.0
    key: str = ""
    first: Place = Place()
    projected: bool = False
    differ_keys: tuple[str, ...] = ()
    differ: tuple[Place, ...] = ()


@dataclass(frozen=True)
class PositionPart:
    """What is added to the token vectors and does not depend on them.

    `rows` is how many positions its table has (0: computed, or not seen), `learned` that it is a parameter.
    `values` are
    the table's rows where it is fixed, else the rows that were added. `index` are the rows that were looked up,
    None where
    a slice is taken. `name` is the parameter, buffer or attribute that holds the table, `key` the sum's operation,
    `added` its line, `made` where the table is made or computed, the likeliest line first; `rates` are the lines that
    raise to a power there, `waves` those that call sine and cosine.
    """

    found: bool
    why: str = ""
    rows: int = 0
    learned: bool = False
    values: NDArray[np.float64] | None = None
    index: tuple[int, ...] | None = None
    name: str = ""
    registered: bool = True
    key: str = ""
    added: Place = Place()
    made: tuple[Place, ...] = ()
    rates: tuple[Place, ...] = ()
    waves: tuple[Place, ...] = ()


@dataclass(frozen=True)
class Reach:
    """What happens at one length: the positions' rows are reached, cut to fewer, or something is raised.

    `repeats` is the earlier position whose vector the last one has, None where it has its own.
    """

    length: int
    raised: str = ""
    deliberate: bool = False
    places: tuple[Place, ...] = ()
    positions: int = 0
    repeats: int | None = None


@dataclass(frozen=True)
class PositionReach:
    """How far positions reach: one beyond the table's last row, and at the length that the model declares.

    `collision` are two positions of an ordinary batch that look up one row.
    """

    measured: bool
    why: str = ""
    rows: int = 0
    beyond: Reach | None = None
    declared: Reach | None = None
    declared_by: str = ""
    collision: tuple[int, int] | None = None
