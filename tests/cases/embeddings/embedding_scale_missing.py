"""Small token vectors under fixed positions, and small ones that nothing drowns."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import (
    LONGEST,
    VOCAB,
    WIDTH,
    PlainEncoder,
    PreNormLayer,
    SdpaAttention,
    SdpaEncoder,
    TorchAttention,
    WrappedEncoder,
    sinusoid,
)


def small_tokens() -> nn.Embedding:
    tokens = nn.Embedding(VOCAB, WIDTH)
    nn.init.normal_(tokens.weight, std=0.02)
    return tokens


class Broken_root_left_out(PlainEncoder):
    def make_tokens(self) -> nn.Embedding:
        return small_tokens()

    def embed(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)  # <- here
        return x + self.table[: ids.shape[1]]


class Broken_root_left_out_before_fused_attention(PlainEncoder):
    Attention = SdpaAttention
    Layer = PreNormLayer

    def make_tokens(self) -> nn.Embedding:
        return small_tokens()

    def look_up(self, ids: Tensor) -> Tensor:
        return self.tokens(ids)  # <- here


class Broken_initialised_after_the_fact(WrappedEncoder):
    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        nn.init.uniform_(self.tokens.weight, -0.05, 0.05)
        self.register_buffer("table", sinusoid(LONGEST, WIDTH))

    def embed(self, ids: Tensor) -> Tensor:
        return self.tokens(ids) + self.table[: ids.shape[1]]  # <- here


class Broken_weight_indexed(PlainEncoder):
    Attention = TorchAttention

    def make_tokens(self) -> nn.Embedding:
        return small_tokens()

    def look_up(self, ids: Tensor) -> Tensor:
        return self.tokens.weight[ids]  # <- here


class Sound_positions_learned(SdpaEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.tokens = small_tokens()


class Sound_norm_before_positions(PlainEncoder):
    def make_tokens(self) -> nn.Embedding:
        self.token_norm = nn.LayerNorm(WIDTH)
        return small_tokens()

    def look_up(self, ids: Tensor) -> Tensor:
        return self.token_norm(self.tokens(ids))


class Sound_usual_embedding(PlainEncoder):
    def make_tokens(self) -> nn.Embedding:
        return nn.Embedding(VOCAB, WIDTH)

    def look_up(self, ids: Tensor) -> Tensor:
        return self.tokens(ids)


class Sound_positions_made_small_too(PlainEncoder):
    def make_tokens(self) -> nn.Embedding:
        return small_tokens()

    def embed(self, ids: Tensor) -> Tensor:
        return self.tokens(ids) + 0.02 * self.table[: ids.shape[1]]


class Sound_scaled_after_the_sum(PlainEncoder):
    def make_tokens(self) -> nn.Embedding:
        return small_tokens()

    def embed(self, ids: Tensor) -> Tensor:
        small = self.table[: ids.shape[1]] * torch.tensor(0.02)
        return (self.tokens(ids) + small) * math.sqrt(WIDTH)
