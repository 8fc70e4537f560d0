"""Reads a fixed table of positions as sines and cosines, and says what is wrong with them. NumPy only.

A sound table has, for every rate, a sine and a cosine, whose squares sum to one; then a shift by k positions is a
rotation, the same for all positions. Its fastest rate is about one radian a position, so that neighbours are alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
# A column moves if it is not nearly constant over the rows at hand.
MOVES = 0.1
# What a float32 table of 10,000 rows may be off, and columns may differ.
CLOSE = 2e-3
FEWEST_ROWS, MOST_ROWS, MOST_COLUMNS = 8, 256, 64


@dataclass(frozen=True)
class Waves:
    """`meant` tells that the table is made of sines and cosines. Shares are of the columns that move.

    `dead` is the share of all columns that are zero, `repeated` of columns that equal another, `unpaired` of columns
    without a partner a quarter turn away, `alike` the mean cosine of neighbouring rows. `resembles` names a known
    slip whose table this is.
    """

    meant: bool
    dead: float = 0.0
    repeated: float = 0.0
    unpaired: float = 0.0
    alike: float = 1.0
    resembles: str = ""


def read(table: Array) -> Waves:
    """What the rows look like as waves. Needs eight rows and four columns."""
    table = table[:MOST_ROWS]
    rows, width = table.shape
    peak = float(np.abs(table).max()) if table.size else 0.0
    if rows < FEWEST_ROWS or width < 4 or not np.isfinite(table).all() or peak == 0:
        return Waves(False)
    table = table / peak
    zero = np.abs(table).max(0) < 1e-12
    moving = table[:, (table.std(0) > MOVES) & ~zero]
    if moving.shape[1] < 2 or not _is_waves(table[:, ~zero], moving):
        return Waves(False)
    norms = np.linalg.norm(table, axis=1)
    return Waves(
        True,
        dead=float(zero.mean()),
        repeated=_repeated(moving),
        unpaired=_unpaired(moving, table),
        alike=float(np.mean((table[1:] * table[:-1]).sum(1) / np.maximum(norms[1:] * norms[:-1], 1e-12))),
        resembles=_resembles(table),
    )


def _is_waves(table: Array, moving: Array) -> bool:
    """Most columns repeat as one sine does, or all rows have the one length that sine and cosine pairs give."""
    middle, sums = moving[1:-1], moving[2:] + moving[:-2]
    slope = (middle * sums).sum(0) / np.maximum((middle**2).sum(0), 1e-12)
    residual = np.linalg.norm(sums - slope * middle, axis=0) / np.maximum(np.linalg.norm(sums, axis=0), 1e-12)
    lengths = (table**2).sum(1)
    mean = max(float(lengths.mean()), 1e-12)
    pairs = float(lengths.std()) / mean < 1e-3 and abs(mean / table.shape[1] - 0.5) < 0.01
    return bool((residual < 1e-2).mean() > 0.5) or pairs


def _repeated(moving: Array) -> float:
    def twin(column: int) -> bool:
        gaps = np.abs(moving - moving[:, [column]]).max(0)
        gaps[column] = 1.0
        return bool(gaps.min() < CLOSE)

    return float(np.mean([twin(c) for c in _sample(moving)]))


def _unpaired(moving: Array, table: Array) -> float:
    """A column's partner may itself hardly move, so all columns are looked at."""
    squares, others = moving**2, table**2
    spread = [(others + squares[:, [c]]).std(0).min() for c in _sample(moving)]
    return float((np.array(spread) > CLOSE * 5).mean())


def _sample(moving: Array) -> range:
    """Columns to look at: all of a narrow table."""
    return range(0, moving.shape[1], max(1, moving.shape[1] // MOST_COLUMNS))


def _resembles(table: Array) -> str:
    rows, width = table.shape
    if rows < 32 or width < 16:
        return ""  # too short to tell rates apart
    for name, made in _slips(rows, width):
        same = np.abs(made / np.abs(made).max() - table)
        # float32 loses the phase of angles of many thousand radians: most entries decide
        if float(np.quantile(same, 0.8)) < 1e-2:
            return name
    return ""


def _slips(rows: int, width: int) -> Iterator[tuple[str, Array]]:
    """Tables of known slips, in both layouts."""
    at, even = np.arange(rows)[:, None], np.arange(0, width, 2)
    odd = even + 1
    rates = {
        "the exponent has the wrong sign, so that rates grow": (1e4 ** (even / width), None),
        "the exponent is doubled": (1e4 ** (-2 * even / width), None),
        "the exponent is doubled, and sine and cosine of a pair have different rates": (
            1e4 ** (-2 * even / width),
            1e4 ** (-2 * odd / width),
        ),
        "sine and cosine of a pair have different rates": (1e4 ** (-even / width), 1e4 ** (-odd / width)),
        "the exponent is rounded to an integer, so that all rates are one": (np.ones(len(even)), None),
        "the base is multiplied by the exponent in place of being raised to it": (
            1 / (1e4 * np.maximum(even, 1) / width),
            None,
        ),
        "angles are in degrees": (180 / np.pi * 1e4 ** (-even / width), None),
    }
    for name, (sines, cosines) in rates.items():
        s, c = np.sin(at * sines), np.cos(at * (sines if cosines is None else cosines))
        yield name, np.stack((s, c), -1).reshape(rows, -1)[:, :width]
        yield name, np.concatenate((s, c), 1)[:, :width]
    s, c = np.sin(at * 1e4 ** (-even / width)), np.cos(at * 1e4 ** (-even / width))
    none = np.zeros_like(s)
    for name, one, other in (
        ("the cosines are missing", s, none),
        ("the sines are missing", none, c),
        ("sines stand where cosines belong", s, s),
        ("cosines stand where sines belong", c, c),
    ):
        yield name, np.stack((one, other), -1).reshape(rows, -1)[:, :width]
        yield name, np.concatenate((one, other), 1)[:, :width]
