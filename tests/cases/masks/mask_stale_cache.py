"""Masks that outlive their batch, and caches that know when to let go."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from encdoctor.cases.bases import (
    ExplicitAttention,
    FusedEncoder,
    LengthsEncoder,
    PlainEncoder,
    SdpaAttention,
    SdpaEncoder,
)


class Broken_bias_kept(PlainEncoder):
    class Attention(ExplicitAttention):
        bias: Tensor | None = None

        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            if self.bias is None or self.bias.shape[-1] != scores.shape[-1] or len(self.bias) != len(scores):
                bias = torch.zeros(keep.shape, dtype=scores.dtype, device=keep.device)
                self.bias = bias.masked_fill(~keep, torch.finfo(scores.dtype).min)[:, None, None]  # <- here
            return scores + self.bias


class Broken_kept_by_width(LengthsEncoder):
    def __init__(self) -> None:
        super().__init__()
        self.masks: dict[tuple[int, int], Tensor] = {}

    def padding(self, frames: Tensor, lengths: Tensor) -> Tensor:
        at = (frames.shape[0], frames.shape[1])
        if at not in self.masks:
            self.masks[at] = super().padding(frames, lengths)  # <- here
        return self.masks[at]


class Broken_first_mask_for_all(SdpaEncoder):
    class Attention(SdpaAttention):
        allowed: Tensor | None = None

        def attention_mask(self, keep: Tensor) -> Tensor:
            shape = (len(keep), 1, 1, keep.shape[1])
            if self.allowed is None or tuple(self.allowed.shape) != shape:
                self.allowed = super().attention_mask(keep)  # <- here
            return self.allowed


class Sound_kept_with_its_batch(FusedEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.last: Tensor | None = None

    def forward(self, frames: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        """frames: (B, S, 32) features. pad_mask: (B, S) bool, True at padding."""
        self.last = pad_mask
        return super().forward(frames, self.last)


class Sound_triangle_cut_to_length(SdpaEncoder):
    """Causal encoder that keeps one triangle and cuts it."""

    class Attention(SdpaAttention):
        triangle: Tensor | None = None

        def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            length = q.shape[-2]
            if self.triangle is None or len(self.triangle) < length:
                self.triangle = torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
            seen = self.triangle[:length, :length]
            return F.scaled_dot_product_attention(q, k, v, attn_mask=seen if mask is None else mask & seen)
