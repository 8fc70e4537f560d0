"""Masks whose axes are not those of the scores, and scores that have fewer axes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from encdoctor.cases.bases import (
    HEADS,
    ExplicitAttention,
    FusedAttention,
    FusedEncoder,
    PlainEncoder,
    SdpaAttention,
    SdpaEncoder,
    TorchAttention,
    TorchEncoder,
    WrappedEncoder,
)


class Broken_two_axes_for_four(PlainEncoder):
    class Attention(ExplicitAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores.masked_fill(~keep, torch.finfo(scores.dtype).min)  # <- here


class Broken_three_axes_for_four(FusedEncoder):
    class Attention(FusedAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores.masked_fill(~keep.unsqueeze(1), torch.finfo(scores.dtype).min)  # <- here


class OneHead(FusedAttention):
    def split_heads(self, x: Tensor) -> Tensor:
        return x

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT * q.shape[-1] ** -0.5

    def mix(self, weights: Tensor, v: Tensor) -> Tensor:
        return weights @ v

    def merge_heads(self, x: Tensor) -> Tensor:
        return x


class Broken_four_axes_for_three(FusedEncoder):
    class Attention(OneHead):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores.masked_fill(~keep[:, None, None, :], torch.finfo(scores.dtype).min)  # <- here


class Broken_two_axes_for_the_kernel(SdpaEncoder):
    class Attention(SdpaAttention):
        def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            mask = mask if mask is None else mask.squeeze()
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # <- here


class Broken_padding_as_square_mask(TorchEncoder):
    class Attention(TorchAttention):
        def attend(self, x: Tensor, padding: Tensor | None) -> Tensor:
            return self.heads(x, x, x, attn_mask=padding, need_weights=False)[0]  # <- here


class Broken_padding_as_second_argument(WrappedEncoder):
    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.encoder(x, padding)  # <- here


class Sound_heads_folded_into_the_batch(PlainEncoder):
    class Attention(ExplicitAttention):
        def split_heads(self, x: Tensor) -> Tensor:
            return super().split_heads(x).flatten(0, 1)

        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            hidden = ~keep.repeat_interleave(HEADS, 0)[:, None, :]
            return scores.masked_fill(hidden, torch.finfo(scores.dtype).min)

        def merge_heads(self, x: Tensor) -> Tensor:
            return super().merge_heads(x.reshape(-1, HEADS, *x.shape[1:]))


class Sound_one_head_without_an_axis(FusedEncoder):
    class Attention(OneHead):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores.masked_fill(~keep[:, None, :], torch.finfo(scores.dtype).min)
