"""How the parts that are added to make the first hidden state compare in size."""

from __future__ import annotations

from dataclasses import dataclass

from encdoctor.model import Place


@dataclass(frozen=True)
class EmbeddingScale:
    """The token part and the position part where they are added, as standard deviations there.

    `found` is False, with `why`, where no such sum was seen. `normalised` tells that a norm acts on the token part
    before the sum, `learned` that the position part is a parameter. `sentence_change` and `position_change` are how far
    outputs differ between two sentences at the same position, and between two positions of one sentence, both relative
    to the outputs' size. `factor` is what looked-up vectors are multiplied by before the sum, `key` the lookup's
    operation.
    """

    found: bool
    why: str = ""
    token: float = 0.0
    position: float = 0.0
    learned: bool = False
    normalised: bool = False
    d_model: int = 0
    sentence_change: float = 0.0
    position_change: float = 0.0
    factor: float = 1.0
    key: str = ""
    lookup: Place = Place()
    added: Place = Place()

    @property
    def ratio(self) -> float:
        """Token part over position part."""
        return self.token / self.position if self.position else float("inf")
