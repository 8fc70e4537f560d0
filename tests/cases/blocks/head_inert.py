"""Heads that are one head, and heads that share keys and values only."""

from __future__ import annotations

from torch import Tensor, nn

from encdoctor.cases.bases import (
    HEAD_DIM,
    HEADS,
    WIDTH,
    ExplicitAttention,
    FusedAttention,
    FusedEncoder,
    PlainEncoder,
    SdpaAttention,
    SdpaEncoder,
)


class Broken_expanded(PlainEncoder):
    class Attention(ExplicitAttention):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value = (nn.Linear(WIDTH, HEAD_DIM) for _ in range(3))

        def split_heads(self, x: Tensor) -> Tensor:
            return x[:, None].expand(-1, HEADS, -1, -1)

        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            return q @ k.transpose(-2, -1) / HEAD_DIM**0.5  # <- here


class Broken_first_head_repeated(FusedEncoder):
    class Attention(FusedAttention):
        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = super().project(x)
            return q[:, :1].expand_as(q), k[:, :1].expand_as(k), v[:, :1].expand_as(v)

        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            return q @ k.transpose(-2, -1) / HEAD_DIM**0.5  # <- here


class Broken_values_of_one_head_zero(SdpaEncoder):
    class Attention(SdpaAttention):
        def __init__(self) -> None:
            super().__init__()
            nn.init.zeros_(self.qkv.weight[2 * WIDTH : 2 * WIDTH + HEAD_DIM])  # <- in layers.*


class Sound_multi_query(PlainEncoder):
    class Attention(ExplicitAttention):
        def __init__(self) -> None:
            super().__init__()
            self.key, self.value = nn.Linear(WIDTH, HEAD_DIM), nn.Linear(WIDTH, HEAD_DIM)

        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return self.split_heads(self.query(x)), self.key(x)[:, None], self.value(x)[:, None]


class Sound_uniform_at_first(FusedEncoder):
    class Attention(FusedAttention):
        def __init__(self) -> None:
            super().__init__()
            nn.init.zeros_(self.qkv.weight[:WIDTH])
