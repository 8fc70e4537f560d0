"""Fills that hide only half, and finite fills that hide exactly."""

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
    TorchAttention,
    TorchEncoder,
)


class Broken_minus_ten(PlainEncoder):
    class Attention(ExplicitAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores.masked_fill(~keep[:, None, None, :], -10.0)  # <- here


class Broken_sign_lost_in_the_exponent(PlainEncoder):
    class Attention(ExplicitAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores.masked_fill(~keep[:, None, None, :], 1e-9)  # <- here


class Broken_scores_multiplied(FusedEncoder):
    class Attention(FusedAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores * keep[:, None, None, :]  # <- here


class Broken_penalty_of_five(SdpaEncoder):
    class Attention(SdpaAttention):
        def attention_mask(self, keep: Tensor) -> Tensor:
            return (1.0 - keep[:, None, None, :].to(self.out.weight.dtype)) * -5.0  # <- here


class Broken_float_padding_mask(TorchEncoder):
    class Attention(TorchAttention):
        def attend(self, x: Tensor, padding: Tensor | None) -> Tensor:
            bias = None if padding is None else padding.to(x.dtype) * -8.0
            return self.heads(x, x, x, key_padding_mask=bias, need_weights=False)[0]  # <- here


class Sound_minus_ten_thousand(PlainEncoder):
    class Attention(ExplicitAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores.masked_fill(~keep[:, None, None, :], -1e4)


class Sound_smallest_number_added(FusedEncoder):
    class Attention(FusedAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            lowest = scores.new_full((), torch.finfo(scores.dtype).min)
            return scores + torch.where(keep, 0.0, lowest)[:, None, None, :]


class Sound_minus_a_billion_in_float32(PlainEncoder):
    class Attention(ExplicitAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores.float().masked_fill(~keep[:, None, None, :], -1e9)

        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            return F.softmax(scores, dim=-1).to(self.out.weight.dtype)
