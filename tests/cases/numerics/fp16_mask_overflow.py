"""Masks with constants that float16 cannot hold, and constants that fit."""

from __future__ import annotations

import torch
from torch import Tensor

from encdoctor.cases.bases import (
    ExplicitAttention,
    FusedAttention,
    FusedEncoder,
    PlainEncoder,
    SdpaAttention,
    SdpaEncoder,
    WrappedEncoder,
)


class Broken_minus_a_billion(PlainEncoder):
    class Attention(ExplicitAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores.masked_fill(~keep[:, None, None, :], -1e9)  # <- here


class Broken_full_of_minus_a_billion(FusedEncoder):
    class Attention(FusedAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return torch.where(keep[:, None, None, :], scores, torch.full_like(scores, -1e9))  # <- here


class Broken_constant_registered(FusedEncoder):
    class Attention(FusedAttention):
        lowest: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("lowest", torch.tensor(-1e9))  # <- here

        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores + (~keep[:, None, None, :]).to(scores.dtype) * self.lowest


class Broken_bias_for_the_kernel(SdpaEncoder):
    class Attention(SdpaAttention):
        def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            if mask is not None:
                mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, -1e9)  # <- here
            return super().attend(q, k, v, mask)


class Broken_bias_for_torch(WrappedEncoder):
    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        bias = torch.zeros_like(padding, dtype=x.dtype).masked_fill(padding, -1e9)  # <- here
        return self.encoder(x, src_key_padding_mask=bias)


class Sound_fits_into_half(PlainEncoder):
    class Attention(ExplicitAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores.masked_fill(~keep[:, None, None, :], -6e4)


class Sound_scores_in_float32(FusedEncoder):
    class Attention(FusedAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores.float().masked_fill(~keep[:, None, None, :], -1e9)

        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            return scores.softmax(-1).to(self.out.weight.dtype)


class Sound_smallest_of_the_dtype(SdpaEncoder):
    class Attention(SdpaAttention):
        def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            if mask is not None:
                mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, torch.finfo(q.dtype).min)
            return super().attend(q, k, v, mask)
