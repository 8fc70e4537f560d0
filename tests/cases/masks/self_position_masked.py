"""Encoders whose tokens cannot see themselves, by mistake or on purpose."""

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


class Broken_identity_filled(PlainEncoder):
    class Attention(ExplicitAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            own = torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
            return scores.masked_fill(own, torch.finfo(scores.dtype).min).softmax(-1)  # <- here


class Broken_bias_on_the_diagonal(SdpaEncoder):
    class Attention(SdpaAttention):
        def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            others = ~torch.eye(q.shape[-2], dtype=torch.bool, device=q.device)
            return F.scaled_dot_product_attention(
                q, k, v, attn_mask=others if mask is None else mask & others
            )  # <- here


class Broken_square_mask_of_torch(WrappedEncoder):
    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        own = torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
        return self.encoder(x, mask=own, src_key_padding_mask=padding)  # <- here


class Sound_says_so(PlainEncoder):
    """Each token attends to all other tokens."""

    class Attention(ExplicitAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            own = torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
            return scores.masked_fill(own, torch.finfo(scores.dtype).min).softmax(-1)


class Sound_in_one_layer(FusedEncoder):
    def __init__(self) -> None:
        super().__init__()
        self.layers[0].attention = OthersOnly()


class OthersOnly(FusedAttention):
    def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
        own = torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
        return scores.masked_fill(own, torch.finfo(scores.dtype).min).softmax(-1)
