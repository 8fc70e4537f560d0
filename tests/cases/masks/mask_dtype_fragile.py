"""Masks that mean something else as integers or floats, and encoders that take any or refuse."""

from __future__ import annotations

import torch
from torch import Tensor

from encdoctor.cases.bases import ExplicitAttention, FusedAttention, FusedEncoder, PlainEncoder, SdpaEncoder


class Broken_added_unless_bool(PlainEncoder):
    class Attention(ExplicitAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            mask = keep[:, None, None, :]
            if keep.dtype is torch.bool:
                return scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
            return scores + mask  # <- here


class Broken_integers_inverted_bitwise(FusedEncoder):
    class Attention(FusedAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return torch.where((~keep)[:, None, None, :].bool(), torch.finfo(scores.dtype).min, scores)  # <- here

    def forward(self, frames: Tensor, keep: Tensor | None = None) -> Tensor:
        """frames: (B, S, 32) features. keep: (B, S) bool, True at real frames."""
        return self.encode(self.embed(frames), keep)


class Broken_asks_for_true_itself(SdpaEncoder):
    class Attention(ExplicitAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            fill = torch.finfo(scores.dtype).min
            bias = torch.zeros_like(keep, dtype=scores.dtype)
            if keep.dtype is torch.bool:
                bias = bias.masked_fill(~keep, fill)
            return scores + bias[:, None, None, :]  # <- here

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """input_ids: (B, S). attention_mask: (B, S) bool, True for tokens."""
        return self.encode(self.embed(input_ids), attention_mask)


class Sound_converts_at_the_border(SdpaEncoder):
    pass


class Sound_refuses(PlainEncoder):
    def forward(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """ids: (B, S) token ids. keep: (B, S) bool, True at real tokens."""
        if keep is not None and keep.dtype is not torch.bool:
            raise TypeError(f"keep has to be bool, not {keep.dtype}")
        return super().forward(ids, keep)
