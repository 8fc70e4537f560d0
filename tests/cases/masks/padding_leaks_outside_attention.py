"""Convolutions, norms and sums that read padding beside a masked attention, and some that are told."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import (
    WIDTH,
    ExplicitAttention,
    FusedEncoder,
    LengthsEncoder,
    PlainEncoder,
    PostNormLayer,
    PreNormLayer,
)


class ConvLayer(PreNormLayer):
    """A convolution over time in the place of the feed-forward part."""

    def make_feed(self) -> nn.Module:
        return nn.Conv1d(WIDTH, WIDTH, 3, padding=1)

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        x = x + self.attention(self.norm1(x), keep)
        return x + self.convolve(self.norm2(x), keep)

    def convolve(self, x: Tensor, keep: Tensor | None) -> Tensor:
        return self.feed(x.mT).mT.relu()


class Broken_convolution_between(FusedEncoder):
    Layer = ConvLayer  # <- in layers.*.feed


class Broken_norm_over_time(LengthsEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.stem_norm = nn.GroupNorm(4, WIDTH)  # <- in stem_norm

    def embed(self, frames: Tensor) -> Tensor:
        return self.stem_norm(super().embed(frames).mT).mT


class Broken_mean_taken_off(PlainEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        x = super().embed(ids)
        return x - x.mean(1, keepdim=True)  # <- here


class Broken_running_sum(PlainEncoder):
    class Layer(PostNormLayer):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            x = super().forward(x, keep)
            return x + 0.1 * x.flip(1).cumsum(1).flip(1)  # <- here


class Sound_convolution_over_zeros(FusedEncoder):
    class Layer(ConvLayer):
        def convolve(self, x: Tensor, keep: Tensor | None) -> Tensor:
            return super().convolve(x if keep is None else x * keep[..., None], keep)


class Sound_mean_over_real(PlainEncoder):
    def forward(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """ids: (B, S) token ids. keep: (B, S) bool, True at real tokens."""
        x = self.embed(ids)
        real = torch.ones_like(ids, dtype=torch.bool) if keep is None else keep
        mean = (x * real[..., None]).sum(1, keepdim=True) / real.sum(1).clamp(min=1)[:, None, None]
        return self.encode(x - mean, keep)


class Sound_norm_over_features(LengthsEncoder):
    Attention = ExplicitAttention
