"""Masks that are taken the wrong way round, and unusual conventions that are kept."""

from __future__ import annotations

import torch
from torch import Tensor

from encdoctor.cases.bases import (
    ExplicitAttention,
    FusedAttention,
    FusedEncoder,
    LengthsEncoder,
    PlainEncoder,
    SdpaAttention,
    SdpaEncoder,
    TorchAttention,
    TorchEncoder,
    WrappedEncoder,
)


class Broken_fill_where_true(PlainEncoder):
    class Attention(ExplicitAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores.masked_fill(keep[:, None, None, :], torch.finfo(scores.dtype).min)  # <- here


class Broken_penalty_on_tokens(FusedEncoder):
    class Attention(FusedAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            penalty = keep.to(scores.dtype)[:, None, None] * torch.finfo(scores.dtype).min
            return scores + penalty  # <- here


class Broken_fused_kernel_negated(SdpaEncoder):
    class Attention(SdpaAttention):
        def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            return super().attend(q, k, v, None if mask is None else ~mask)  # <- in layers.*.attention


class Broken_keep_given_to_torch(TorchEncoder):
    class Attention(TorchAttention):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            return self.heads(x, x, x, key_padding_mask=keep, need_weights=False)[0]  # <- here


class Broken_tokens_called_padding(WrappedEncoder):  # <- in encoder.layers.*.self_attn
    def forward(self, ids: Tensor) -> Tensor:
        """ids: (B, S) token ids, padded with 0."""
        return self.encode(self.embed(ids), ids != 0)


class Broken_lengths_compared_backwards(LengthsEncoder):  # <- in layers.*.attention
    def padding(self, frames: Tensor, lengths: Tensor) -> Tensor:
        return torch.arange(frames.shape[1], device=frames.device) < lengths[:, None]


class Sound_true_is_padding(PlainEncoder):
    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """ids: (B, S) token ids. mask: (B, S) bool, True where the token is padding."""
        return self.encode(self.embed(ids), None if mask is None else ~mask)


class Sound_convention_not_documented(PlainEncoder):
    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """ids: (B, S) token ids."""
        return self.encode(self.embed(ids), mask)


class Sound_mask_is_added(PlainEncoder):
    class Attention(ExplicitAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores + keep

    def forward(self, ids: Tensor, bias: Tensor | None = None) -> Tensor:
        """ids: (B, S) token ids. bias: (B, 1, 1, S) additive mask, 0 at tokens and finfo.min at padding."""
        return self.encode(self.embed(ids), bias)
