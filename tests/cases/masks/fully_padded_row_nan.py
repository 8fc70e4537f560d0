"""Encoders that a sample of nothing but padding turns into NaN, and ways to keep it finite."""

from __future__ import annotations

import torch
from torch import Tensor

from encdoctor.cases.bases import (
    ExplicitAttention,
    FusedAttention,
    FusedEncoder,
    PlainEncoder,
    SdpaEncoder,
)


class Broken_filled_with_infinity(PlainEncoder):
    class Attention(ExplicitAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores.masked_fill(~keep[:, None, None, :], -torch.inf)  # <- here


class Broken_infinity_added(FusedEncoder):
    class Attention(FusedAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            bias = torch.zeros_like(keep, dtype=scores.dtype).masked_fill(~keep, float("-inf"))
            return scores + bias[:, None, None, :]  # <- in layers.*.attention


class Broken_odds_divided_by_nothing(PlainEncoder):
    class Attention(ExplicitAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            odds = (scores - scores.amax(-1, keepdim=True)).exp()
            odds = odds if keep is None else odds * keep[:, None, None, :]
            return odds / odds.sum(-1, keepdim=True)  # <- here


class Broken_mean_over_nothing(SdpaEncoder):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """input_ids: (B, S). attention_mask: (B, S) int, 1 for tokens and 0 for padding."""
        hidden = super().forward(input_ids, attention_mask)
        kept = attention_mask[..., None].to(hidden.dtype)
        return (hidden * kept).sum(1) / kept.sum(1)  # <- here


class Sound_smallest_number(PlainEncoder):
    pass


class Sound_rows_zeroed(PlainEncoder):
    class Attention(ExplicitAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores.masked_fill(~keep[:, None, None, :], -torch.inf)

        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            return scores.softmax(-1).nan_to_num(0.0)


class Sound_empty_samples_unmasked(FusedEncoder):
    class Attention(FusedAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            keep = keep | ~keep.any(-1, keepdim=True)
            return scores.masked_fill(~keep[:, None, None, :], float("-inf"))


class Sound_fused_kernel(SdpaEncoder):
    pass
