"""Encoders whose heads are cut out of the wrong axis, and sound ones that arrange their axes another way."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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


class Broken_view_without_transpose(PlainEncoder):
    class Attention(ExplicitAttention):
        def split_heads(self, x: Tensor) -> Tensor:
            return x.view(x.shape[0], HEADS, x.shape[1], HEAD_DIM)  # <- here


class Broken_values_only(FusedEncoder):
    class Attention(FusedAttention):
        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = self.qkv(x).chunk(3, dim=-1)
            size = (x.shape[0], HEADS, x.shape[1], HEAD_DIM)
            return self.split_heads(q), self.split_heads(k), v.reshape(size)  # <- here


class Broken_queries_only(SdpaEncoder):
    class Attention(SdpaAttention):
        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = self.qkv(x).view(*x.shape[:2], 3, HEADS, HEAD_DIM).permute(2, 0, 3, 1, 4)
            q = q.transpose(1, 2).reshape(x.shape[0], HEADS, -1, HEAD_DIM)  # <- here
            return q, k, v


class HeadsLastAttention(FusedAttention):
    """Heads stay behind the positions; the contraction names the axes."""

    def split_heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (HEADS, HEAD_DIM))

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.einsum("bqhd,bkhd->bhqk", q * HEAD_DIM**-0.5, k)

    def mix(self, weights: Tensor, v: Tensor) -> Tensor:
        return torch.einsum("bhqk,bkhd->bqhd", weights, v)

    def merge_heads(self, x: Tensor) -> Tensor:
        return x.flatten(2)


class Sound_heads_behind_positions(FusedEncoder):
    Attention = HeadsLastAttention


class BatchedHeadsAttention(SdpaAttention):
    """Heads folded into the batch."""

    def split_heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], HEADS, HEAD_DIM).transpose(1, 2).reshape(-1, x.shape[1], HEAD_DIM)

    def attention_mask(self, keep: Tensor) -> Tensor:
        return keep.repeat_interleave(HEADS, 0)[:, None]

    def merge_heads(self, x: Tensor) -> Tensor:
        return x.view(-1, HEADS, *x.shape[1:]).transpose(1, 2).flatten(2)


class Sound_heads_folded_into_batch(SdpaEncoder):
    Attention = BatchedHeadsAttention


class NeighbourhoodAttention(ExplicitAttention):
    """A depthwise convolution before attention mixes neighbours on purpose."""

    def __init__(self) -> None:
        super().__init__()
        self.near = nn.Conv1d(WIDTH, WIDTH, 3, padding=1, groups=WIDTH)

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        shown = x if keep is None else x * keep[..., None]
        return super().forward(x + F.gelu(self.near(shown.transpose(1, 2))).transpose(1, 2), keep)


class Sound_convolution_before_attention(PlainEncoder):
    Attention = NeighbourhoodAttention
