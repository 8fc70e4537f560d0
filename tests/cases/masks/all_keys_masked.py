"""Masks that leave nothing to see, and masks that leave enough."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from encdoctor.cases.bases import (
    ExplicitAttention,
    FusedAttention,
    FusedEncoder,
    PlainEncoder,
    SdpaAttention,
    SdpaEncoder,
    WrappedEncoder,
)


class Broken_two_halves(PlainEncoder):
    class Attention(ExplicitAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            masked = super().mask_scores(scores, keep)
            ragged = keep.sum(1) < keep.shape[1]
            return masked.masked_fill(ragged[:, None, None, None], torch.finfo(scores.dtype).min)  # <- here


class Broken_any_for_each(FusedEncoder):
    class Attention(FusedAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            hidden = (~keep).any(1)[:, None, None, None].expand_as(scores)
            return scores.masked_fill(hidden, torch.finfo(scores.dtype).min)  # <- here


class Broken_mask_without_samples(SdpaEncoder):
    class Attention(SdpaAttention):
        def attention_mask(self, keep: Tensor) -> Tensor:
            return (keep & keep.all(1, keepdim=True))[:, None, None, :]

        def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            if mask is None:
                return F.scaled_dot_product_attention(q, k, v)
            bias = torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, torch.finfo(q.dtype).min)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)  # <- here


class Sound_padding_hidden_twice(PlainEncoder):
    class Attention(ExplicitAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return super().mask_scores(super().mask_scores(scores, keep), keep)


class Sound_square_and_padding(WrappedEncoder):
    """Autoregressive encoder; ids padded with 0."""

    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        return self.encoder(x, mask=later, src_key_padding_mask=padding)
