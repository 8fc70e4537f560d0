"""What the output is made of, whatever the weights."""

from __future__ import annotations

from dataclasses import dataclass

from encdoctor.model import Place


@dataclass(frozen=True)
class OutputFacts:
    """`depends` is how far the output moves when all content changes, relative to its size; `lost_at` the first line
    after which nothing of the input is left on the way to the output.

    `sums_to_one` tells that the output's rows are probabilities, `softmax_at` where they become so; `meant_for` says
    what the documentation names, logits or probabilities, and `quote` is its sentence.
    """

    depends: float
    lost_at: tuple[Place, ...]
    sums_to_one: bool
    log_of_it: bool
    softmax_at: Place
    meant_for: str
    quote: str
