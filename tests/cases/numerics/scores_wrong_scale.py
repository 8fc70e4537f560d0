"""Scores divided by the wrong number, or once too often, and scales that only look unusual."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from encdoctor.cases.bases import (
    HEAD_DIM,
    WIDTH,
    ExplicitAttention,
    FusedAttention,
    FusedEncoder,
    PlainEncoder,
    SdpaAttention,
    SdpaEncoder,
)


class Broken_root_of_the_model_width(PlainEncoder):
    class Attention(ExplicitAttention):
        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            return q @ k.transpose(-2, -1) / math.sqrt(WIDTH)  # <- here


class Broken_head_width_without_root(FusedEncoder):
    class Attention(FusedAttention):
        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            return torch.einsum("bhqd,bhkd->bhqk", q, k) / HEAD_DIM  # <- here


class Broken_scaled_again_by_fused_attention(SdpaEncoder):
    class Attention(SdpaAttention):
        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = super().project(x)
            return q * HEAD_DIM**-0.5, k, v  # <- here

        def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class Broken_divided_by_the_inverse(PlainEncoder):
    class Attention(ExplicitAttention):
        factor = HEAD_DIM**-0.5

        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            scores = q @ k.mT
            return scores / self.factor  # <- here


class Sound_root_shared_by_query_and_key(FusedEncoder):
    class Attention(FusedAttention):
        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            return (q * HEAD_DIM**-0.25) @ (k * HEAD_DIM**-0.25).mT


class Sound_three_kinds_of_scores(PlainEncoder):
    """DeBERTa divides by the root of three head widths, as it adds three products."""

    class Attention(ExplicitAttention):
        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            return q @ k.mT / math.sqrt(3 * HEAD_DIM)


class Sound_maximal_update_scale(PlainEncoder):
    """Under maximal update parametrisation (µP) scores are divided by the width itself, with a factor for the base."""

    class Attention(ExplicitAttention):
        base_width = HEAD_DIM

        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            return q @ k.mT * (math.sqrt(self.base_width) / HEAD_DIM)


class Sound_softly_capped(FusedEncoder):
    class Attention(FusedAttention):
        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            return 20 * torch.tanh(super().scores(q, k) / 20)
