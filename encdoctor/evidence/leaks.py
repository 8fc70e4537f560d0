"""Through which operation padding gets into what is real: its content, or how much of it there is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from encdoctor.model import Place


class Way(StrEnum):
    """Where an operation stands: between scores and values, behind the last positions, or anywhere else."""

    ATTENTION = "attention"
    POOLING = "pooling"
    OTHER = "other"


@dataclass(frozen=True)
class Entry:
    """The first operation whose output at real positions depends on padding, while its inputs there do not.

    `site` is the softmax of the attention site it belongs to, "" elsewhere; `rearranges` tells that the operation
    computes nothing and moves numbers to other places.
    """

    key: str
    operation: str
    module: str
    place: Place
    foreign: bool
    way: Way
    site: str = ""
    rearranges: bool = False


@dataclass(frozen=True)
class PaddingEntry:
    """Where padding's content gets in; looked for only where real outputs, or pooled ones, move.

    `pooled` is how far outputs without positions move though those at positions do not; `pooled_output` says which.
    """

    entry: Entry | None = None
    pooled: float = 0.0
    pooled_output: str = ""


@dataclass(frozen=True)
class PaddingAmount:
    """The same sentences alone and behind more padding, where padding's content moves nothing.

    `change` is measured in float64 where the model runs in it, `change_own` in the model's own dtype, at the width
    `longest` and real lengths of which `length` shows most.
    """

    measured: bool
    why: str = ""
    change: float = 0.0
    change_own: float = 0.0
    pooled: bool = False
    length: int = 0
    longest: int = 0
    entry: Entry | None = None
