"""Encoders with biases by distance that reward one side, and sound ones."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from encdoctor.cases.bases import HEAD_DIM, HEADS, ExplicitAttention, FusedAttention, FusedEncoder, SdpaAttention


def signed(length: int) -> Tensor:
    """(S, S): how far ahead each key is."""
    at = torch.arange(length)
    return at[None] - at[:, None]


def slopes() -> Tensor:
    return (2.0 ** -torch.arange(1, HEADS + 1))[:, None, None]


class BiasedEncoder(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        return self.stem(frames)

    def make_parts(self) -> None:
        super().make_parts()
        del self.positions


class Broken_signed_distance(BiasedEncoder):
    class Attention(ExplicitAttention):
        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            bias = (slopes() * signed(q.shape[2])).to(q)
            return q @ k.transpose(-2, -1) / math.sqrt(HEAD_DIM) + bias  # <- here


class Broken_penalty_of_the_wrong_sign(BiasedEncoder):
    class Attention(FusedAttention):
        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            behind = signed(q.shape[2]).t().to(q)
            return super().scores(q, k) + behind * slopes().to(q)  # <- here


class Broken_bias_for_fused_attention(BiasedEncoder):
    class Attention(SdpaAttention):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            q, k, v = self.project(x)
            bias = (slopes() * signed(x.shape[1])).to(x)
            scores = q @ k.mT / math.sqrt(HEAD_DIM) + bias  # <- here
            if keep is not None:
                scores = scores.masked_fill(~keep[:, None, None], torch.finfo(x.dtype).min)
            return self.out(self.merge_heads(scores.softmax(-1) @ v))


class Sound_absolute_distance(BiasedEncoder):
    class Attention(ExplicitAttention):
        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            return super().scores(q, k) - (slopes() * signed(q.shape[2]).abs()).to(q)


class Sound_causal_penalty(BiasedEncoder):
    """A causal encoder: the bonus for later keys is hidden."""

    class Attention(SdpaAttention):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            q, k, v = self.project(x)
            ahead = signed(x.shape[1]).to(x.device)
            bias = (slopes() * signed(x.shape[1])).to(x).masked_fill(ahead > 0, torch.finfo(x.dtype).min)
            if keep is not None:
                bias = bias.masked_fill(~keep[:, None, None], torch.finfo(x.dtype).min)
            return self.out(self.merge_heads(F.scaled_dot_product_attention(q, k, v, attn_mask=bias)))
