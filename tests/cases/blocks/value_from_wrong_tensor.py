"""Attention that mixes something else than its values, and attention with fewer projections by design."""

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


class Broken_keys_mixed(FusedEncoder):
    class Attention(FusedAttention):
        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, _ = super().project(x)
            return q, k, k

        def mix(self, weights: Tensor, v: Tensor) -> Tensor:
            return weights @ v  # <- here


class Broken_keys_given_to_the_kernel(SdpaEncoder):
    class Attention(SdpaAttention):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            q, k, _ = self.project(x)
            mask = None if keep is None else self.attention_mask(keep)
            return self.out(self.merge_heads(super().attend(q, k, k, mask)))  # <- in layers.*


class Broken_raw_input(PlainEncoder):
    class Attention(FusedAttention):
        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, _ = super().project(x)
            return q, k, self.split_heads(x)

        def mix(self, weights: Tensor, v: Tensor) -> Tensor:
            return weights @ v  # <- here


class Sound_one_map_for_keys_and_values(PlainEncoder):
    class Attention(ExplicitAttention):
        def __init__(self) -> None:
            super().__init__()
            del self.value

        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            k = self.split_heads(self.key(x))
            return self.split_heads(self.query(x)), k, k


class Sound_no_value_map(SdpaEncoder):
    class Attention(SdpaAttention):
        def __init__(self) -> None:
            super().__init__()
            self.qk = nn.Linear(WIDTH, 2 * WIDTH)
            del self.qkv

        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k = self.qk(x).chunk(2, -1)
            return self.split_heads(q), self.split_heads(k), self.split_heads(x)
