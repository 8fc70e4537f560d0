"""Encoders that take another path without a mask, and some whose two paths agree."""

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
    TorchEncoder,
)


class Broken_scaled_in_one_branch(PlainEncoder):
    class Attention(ExplicitAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            if keep is None:
                scores = scores * 1.5  # <- here
            return scores.softmax(-1)


class Broken_pads_inside(FusedEncoder):
    """Frames are padded to a multiple of four for the sake of the kernel."""

    def forward(self, frames: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        """frames: (B, S, 32) features. pad_mask: (B, S) bool, True at padding."""
        extra = -frames.shape[1] % 4
        x = self.embed(F.pad(frames, (0, 0, 0, extra)))
        keep = None if pad_mask is None else ~F.pad(pad_mask, (0, extra), value=True)
        return self.encode(x, keep)[:, : frames.shape[1]]  # <- in layers.*


class Broken_bias_with_the_mask(SdpaEncoder):
    class Attention(SdpaAttention):
        def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            if mask is not None:
                far = torch.arange(q.shape[-2], device=q.device)
                near = -0.5 * (far[:, None] - far).abs().to(q.dtype)
                mask = near.masked_fill(~mask, torch.finfo(q.dtype).min)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # <- here


class Sound_makes_its_own(SdpaEncoder):
    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """input_ids: (B, S). attention_mask: (B, S) int, 1 for tokens and 0 for padding."""
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        return super().forward(input_ids, mask)


class Sound_two_kernels(TorchEncoder):
    pass


class Sound_odds_without_mask(FusedEncoder):
    class Attention(FusedAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            if keep is not None:
                return scores.softmax(-1)
            odds = (scores - scores.amax(-1, keepdim=True)).exp()
            return odds / odds.sum(-1, keepdim=True)
