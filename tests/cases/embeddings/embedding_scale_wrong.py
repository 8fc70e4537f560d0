"""Encoders that scale token vectors the wrong way, and sound ones."""

from __future__ import annotations

import math

from torch import Tensor, nn

from encdoctor.cases.bases import LONGEST, VOCAB, WIDTH, PlainEncoder, SdpaEncoder, WrappedEncoder, sinusoid


class Broken_divided(PlainEncoder):
    def look_up(self, ids: Tensor) -> Tensor:
        return self.tokens(ids) / math.sqrt(WIDTH)  # <- here


class Broken_by_the_width(PlainEncoder):
    def make_tokens(self) -> nn.Embedding:
        return nn.Embedding(VOCAB, WIDTH)

    def look_up(self, ids: Tensor) -> Tensor:
        return self.tokens(ids) * WIDTH  # <- here


class Broken_scaled_in_two_places(WrappedEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        table = sinusoid(ids.shape[1], WIDTH).to(self.tokens.weight)
        return self.tokens(ids) * math.sqrt(WIDTH) * math.sqrt(WIDTH) + table  # <- here


class Sound_scaled_once(PlainEncoder):
    pass


class Sound_ordinary_embedding_unscaled(PlainEncoder):
    def make_tokens(self) -> nn.Embedding:
        return nn.Embedding(VOCAB, WIDTH)

    def look_up(self, ids: Tensor) -> Tensor:
        return self.tokens(ids)


class Sound_learned_positions(SdpaEncoder):
    """A learned table adapts, however small it starts."""

    def make_parts(self) -> None:
        super().make_parts()
        self.positions = nn.Embedding(LONGEST, WIDTH)
        nn.init.normal_(self.positions.weight, std=0.02)

    def embed(self, ids: Tensor) -> Tensor:
        return super().embed(ids) + self.tokens(ids) * (math.sqrt(WIDTH) - 1)
