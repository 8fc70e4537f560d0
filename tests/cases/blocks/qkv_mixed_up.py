"""Queries that are keys or values, and queries that are tied on purpose."""

from __future__ import annotations

from torch import Tensor, nn

from encdoctor.cases.bases import (
    WIDTH,
    ExplicitAttention,
    FusedAttention,
    FusedEncoder,
    PlainEncoder,
    SdpaAttention,
    SdpaEncoder,
)


class Broken_second_part_for_both(FusedEncoder):
    class Attention(FusedAttention):
        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            _, k, v = self.qkv(x).chunk(3, dim=-1)  # <- here
            return self.split_heads(k), self.split_heads(k), self.split_heads(v)


class Broken_values_as_queries(SdpaEncoder):
    class Attention(SdpaAttention):
        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            _, k, v = self.qkv(x).chunk(3, dim=-1)  # <- here
            return self.split_heads(v), self.split_heads(k), self.split_heads(v)


class Broken_index_repeated(PlainEncoder):
    class Attention(FusedAttention):
        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            parts = self.qkv(x).unflatten(-1, (3, WIDTH))  # <- here
            q, k, v = parts[..., 0, :], parts[..., 0, :], parts[..., 2, :]
            return self.split_heads(q), self.split_heads(k), self.split_heads(v)


class Sound_tied_queries_and_keys(PlainEncoder):
    """Queries and keys share weights, as in Reformer."""

    class Attention(ExplicitAttention):
        def __init__(self) -> None:
            super().__init__()
            self.both = nn.Linear(WIDTH, WIDTH)
            del self.query, self.key

        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            both = self.split_heads(self.both(x))
            return both, both, self.split_heads(self.value(x))


class Sound_another_order(FusedEncoder):
    class Attention(FusedAttention):
        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            v, q, k = self.qkv(x).chunk(3, dim=-1)
            return self.split_heads(q), self.split_heads(k), self.split_heads(v)
