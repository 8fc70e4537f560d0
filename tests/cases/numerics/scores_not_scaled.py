"""Scores that are q·k as it stands, and encoders that need no division."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encdoctor.cases.bases import (
    HEAD_DIM,
    HEADS,
    ExplicitAttention,
    FusedAttention,
    FusedEncoder,
    PlainEncoder,
    SdpaAttention,
    SdpaEncoder,
)


class Broken_division_forgotten(PlainEncoder):
    class Attention(ExplicitAttention):
        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            return q @ k.transpose(-2, -1)  # <- here


class Broken_einsum_without_scale(FusedEncoder):
    class Attention(FusedAttention):
        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            return torch.einsum("bhqd,bhkd->bhqk", q, k)  # <- here


class Broken_scale_of_one_for_fused_attention(SdpaEncoder):
    class Attention(SdpaAttention):
        def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0)  # <- here


class Broken_division_behind_the_softmax(PlainEncoder):
    class Attention(ExplicitAttention):
        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            return q @ k.transpose(-2, -1)  # <- here

        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            return super().weigh(scores, keep) / math.sqrt(HEAD_DIM)


class Sound_scale_in_the_weights(PlainEncoder):
    """As T5 does it."""

    class Attention(ExplicitAttention):
        def __init__(self) -> None:
            super().__init__()
            with torch.no_grad():
                self.query.weight.mul_(HEAD_DIM**-0.5)
                self.query.bias.mul_(HEAD_DIM**-0.5)

        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            return q @ k.transpose(-2, -1)


class Sound_cosine_with_learned_temperature(FusedEncoder):
    class Attention(FusedAttention):
        def __init__(self) -> None:
            super().__init__()
            self.log_temperature = nn.Parameter(torch.full((HEADS, 1, 1), 1.5))

        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            return F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * self.log_temperature.exp()


class Sound_query_scaled_before_rotation(PlainEncoder):
    """Rotary positions stand between the scale and the product."""

    class Attention(ExplicitAttention):
        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            return self.rotate(q * HEAD_DIM**-0.5) @ self.rotate(k).mT

        def rotate(self, x: Tensor) -> Tensor:
            places = torch.arange(x.shape[-2], device=x.device, dtype=x.dtype)
            angles = places[:, None] * 1e4 ** (-torch.arange(0, HEAD_DIM, 2, device=x.device) / HEAD_DIM)
            cos, sin = angles.cos().repeat(1, 2).to(x.dtype), angles.sin().repeat(1, 2).to(x.dtype)
            first, second = x.chunk(2, -1)
            return x * cos + torch.cat((-second, first), -1) * sin
