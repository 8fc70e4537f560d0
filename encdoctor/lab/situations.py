"""The circumstances under which the model is run, as a value that can be a dictionary key."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Situation:
    """One way to run the model.

    `lengths` are the real lengths in a batch that is `length` long; where they are shorter, the rest is padding.
    `masked` passes the mask (a model may not need one where nothing is padded). `seed` makes the contents of real
    positions, `padding_seed` those of padding: two situations that differ in it alone differ in padding alone.
    `replaced` lists (sample, position) pairs whose content is another than the seed's. `side` is where padding
    stands. `dtype` is the model's and the input's; `autocast` is a dtype name or "". Axes get distinct primes by
    default (3 samples, 13 positions), so that no two can be taken for each other.
    """

    lengths: tuple[int, ...] = (13, 7, 5)
    length: int = 13
    masked: bool = True
    seed: int = 0
    padding_seed: int = 0
    replaced: tuple[tuple[int, int], ...] = ()
    side: str = "right"
    dtype: str = "float64"
    autocast: str = ""
    training: bool = False
    grad: bool = False
    contiguous: bool = True
    fast_path: bool = True

    @property
    def batch(self) -> int:
        """Number of samples."""
        return len(self.lengths)

    @property
    def padded(self) -> bool:
        """Whether any sample is shorter than the batch."""
        return any(n < self.length for n in self.lengths)


PADDED = Situation()
FULL = Situation(lengths=(13, 13, 13))
EMPTY_ROW = Situation(lengths=(13, 0, 7))


def describe(situation: Situation) -> str:
    parts = [f"batch {situation.batch}, length {situation.length}"]
    if situation.padded:
        parts.append(f"real lengths {', '.join(map(str, situation.lengths))}")
    if not situation.masked:
        parts.append("no mask")
    if situation.autocast:
        parts.append(f"autocast {situation.autocast}")
    elif situation.dtype not in ("float32", "float64"):
        parts.append(situation.dtype)
    if not situation.contiguous:
        parts.append("non-contiguous input")
    return ", ".join(parts)
