"""Results that hang on how long the batch is, and results that do not."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import (
    WIDTH,
    ExplicitAttention,
    FusedAttention,
    FusedEncoder,
    LengthsEncoder,
    PlainEncoder,
    SdpaEncoder,
)


class Broken_positions_from_the_end(SdpaEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1] - 1, -1, -1, device=ids.device)
        return self.tokens(ids) + self.positions(places)  # <- here


class Broken_divides_by_the_width(PlainEncoder):
    def forward(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """ids: (B, S) token ids. keep: (B, S) bool, True at real tokens."""
        x = self.embed(ids)
        real = torch.ones_like(ids, dtype=torch.bool) if keep is None else keep
        mean = (x * real[..., None]).sum(1, keepdim=True) / ids.shape[1]  # <- here
        return self.encode(x + mean, keep)


class Broken_scaled_by_the_width(FusedEncoder):
    class Attention(FusedAttention):
        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            return torch.einsum("bhqd,bhkd->bhqk", q, k) * math.log(k.shape[-2]) / 8  # <- here


class Broken_norm_over_zeros(LengthsEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.stem_norm = nn.GroupNorm(4, WIDTH)  # <- in stem_norm

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """frames: (B, S, 32) features. lengths: (B,) int64, the number of real frames."""
        padding = self.padding(frames, lengths)
        x = self.embed(frames).masked_fill(padding[..., None], 0.0)
        return self.encode(self.stem_norm(x.mT).mT, ~padding)


class Sound_positions_from_the_front(PlainEncoder):
    class Attention(ExplicitAttention):
        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            far = torch.arange(k.shape[-2], device=k.device)
            slope = -0.5 * (far[:, None] - far).abs()
            return super().scores(q, k) + slope


class Sound_scaled_by_the_number_of_keys(FusedEncoder):
    class Attention(FusedAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            count = keep.sum(1)[:, None, None, None]
            return super().mask_scores(scores * (1 + count).log() / 2, keep)

        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            return (scores if keep is not None else scores * math.log(1 + scores.shape[-1]) / 2).softmax(-1)
