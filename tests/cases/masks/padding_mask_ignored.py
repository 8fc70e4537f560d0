"""Encoders that are told about padding and let it in, and some that look like it."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encdoctor.cases.bases import (
    HEAD_DIM,
    ExplicitAttention,
    LengthsEncoder,
    PlainEncoder,
    SdpaAttention,
    SdpaEncoder,
    Stack,
    TorchAttention,
    TorchEncoder,
    WrappedEncoder,
)


class Broken_mask_never_used(PlainEncoder):
    class Attention(ExplicitAttention):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            q, k, v = self.project(x)
            scores = q @ k.transpose(-2, -1) / math.sqrt(HEAD_DIM)  # <- here
            return self.out(self.merge_heads(scores.softmax(-1) @ v))


class Broken_fill_not_assigned(PlainEncoder):  # <- in layers.*.attention
    class Attention(ExplicitAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            scores.masked_fill(~keep[:, None, None, :], torch.finfo(scores.dtype).min)
            return scores


class Broken_fused_without_mask(SdpaEncoder):
    class Attention(SdpaAttention):
        def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            return F.scaled_dot_product_attention(q, k, v)  # <- here


class Broken_heads_without_padding(TorchEncoder):
    class Attention(TorchAttention):
        def attend(self, x: Tensor, padding: Tensor | None) -> Tensor:
            return self.heads(x, x, x, need_weights=False)[0]  # <- here


class Broken_padding_not_handed_on(WrappedEncoder):
    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.encoder(x)  # <- here


class Broken_lengths_dropped(LengthsEncoder):
    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """frames: (B, S, 32) features. lengths: (B,) int64, the number of real frames."""
        hidden = self.encode(self.embed(frames), None)  # <- in layers.*.attention
        return hidden.masked_fill(self.padding(frames, lengths)[..., None], 0.0)


class Sound_takes_no_mask(PlainEncoder):
    def forward(self, ids: Tensor) -> Tensor:
        """ids: (B, S) token ids, all of one length."""
        return self.encode(self.embed(ids), None)


class Sound_mixes_by_fourier_transform(Stack):
    class Attention(nn.Module):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            return torch.fft.fft2(x).real

    def forward(self, frames: Tensor) -> Tensor:
        """frames: (B, S, 32) features."""
        return self.encode(frames, None)


class Sound_odds_masked(PlainEncoder):
    class Attention(ExplicitAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            odds = (scores - scores.amax(-1, keepdim=True)).exp()
            odds = odds if keep is None else odds * keep[:, None, None, :]
            return odds / odds.sum(-1, keepdim=True).clamp(min=1e-6)


class Sound_mask_shared_by_all_layers(SdpaEncoder):
    class Attention(SdpaAttention):
        def attention_mask(self, keep: Tensor) -> Tensor:
            return keep[:, None, None, :].expand(-1, 1, keep.shape[1], -1)
