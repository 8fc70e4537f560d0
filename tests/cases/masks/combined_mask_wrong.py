"""Causal encoders that lose their triangle to the padding mask, and some that keep both."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from encdoctor.cases.bases import (
    ExplicitAttention,
    PlainEncoder,
    SdpaAttention,
    SdpaEncoder,
    TorchAttention,
    TorchEncoder,
    WrappedEncoder,
)


def earlier(like: Tensor, length: int) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool, device=like.device).tril()


class Broken_or_for_and(SdpaEncoder):
    """Causal encoder."""

    class Attention(SdpaAttention):
        def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            seen = earlier(q, q.shape[-2]) if mask is None else earlier(q, q.shape[-2]) | mask
            return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)  # <- here


class Broken_flag_or_mask(SdpaEncoder):
    """Autoregressive encoder."""

    class Attention(SdpaAttention):
        def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)  # <- here


class Broken_one_or_the_other(PlainEncoder):
    """Each token only sees the past and itself: causal."""

    class Attention(ExplicitAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            if keep is None:
                scores = scores.masked_fill(~earlier(scores, scores.shape[-1]), torch.finfo(scores.dtype).min)
            return scores.softmax(-1)  # <- in layers.*.attention


class Broken_square_for_full_batches(TorchEncoder):
    """Causal encoder."""

    class Attention(TorchAttention):
        def attend(self, x: Tensor, padding: Tensor | None) -> Tensor:
            later = ~earlier(x, x.shape[1]) if padding is None else None
            return self.heads(x, x, x, key_padding_mask=padding, attn_mask=later, need_weights=False)[0]  # <- here


class Sound_both_in_one(SdpaEncoder):
    """Causal encoder."""

    class Attention(SdpaAttention):
        def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            seen = earlier(q, q.shape[-2])
            return F.scaled_dot_product_attention(q, k, v, attn_mask=seen if mask is None else seen & mask)


class Sound_both_handed_to_torch(WrappedEncoder):
    """Autoregressive encoder; ids padded with 0."""

    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.encoder(x, mask=~earlier(x, x.shape[1]), src_key_padding_mask=padding)
