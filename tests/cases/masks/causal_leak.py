"""Encoders that promise not to look ahead and do, and some that keep the promise or never made it."""

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


class Broken_off_by_one(PlainEncoder):
    """Causal: each token sees itself and what came before."""

    class Attention(ExplicitAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(2)
            return scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1)  # <- here


class Broken_triangle_transposed(FusedEncoder):
    is_causal = True

    class Attention(FusedAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril(-1)
            return scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1)  # <- here


class Broken_flag_forgotten(SdpaEncoder):
    def __init__(self, causal: bool = True) -> None:
        super().__init__()
        self.causal = causal

    class Attention(SdpaAttention):
        def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # <- here


class Broken_square_mask_transposed(WrappedEncoder):
    """Autoregressive encoder; ids padded with 0."""

    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        earlier = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril(-1)
        return self.encoder(x, mask=earlier, src_key_padding_mask=padding)  # <- here


class Sound_strictly_later_keys(PlainEncoder):
    """Causal: each token sees itself and what came before."""

    class Attention(ExplicitAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            return scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1)


class Sound_flag_of_the_kernel(SdpaEncoder):
    is_causal = True

    class Attention(SdpaAttention):
        def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            square = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool, device=q.device).tril()
            return F.scaled_dot_product_attention(q, k, v, square if mask is None else mask & square)


class Sound_prefix_sees_itself(PlainEncoder):
    """Causal, but for a prefix: the prefix is seen by all, also by itself."""

    prefix_length = 3

    class Attention(ExplicitAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            hidden[:, :3] = False
            return scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1)


class Sound_looks_both_ways(PlainEncoder):
    """Bidirectional, not causal."""
