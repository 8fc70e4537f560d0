"""Dropout on scores, and dropout where it belongs."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from encdoctor.cases.bases import (
    ExplicitAttention,
    FusedAttention,
    FusedEncoder,
    PlainEncoder,
    SdpaEncoder,
    WrappedEncoder,
)


class Broken_masked_keys_come_back(PlainEncoder):
    class Attention(ExplicitAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores.masked_fill(~keep[:, None, None, :], -1e4)

        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            scores = F.dropout(scores, 0.1, self.training)  # <- here
            return super().weigh(scores, keep)


class Broken_before_the_mask(FusedEncoder):
    class Attention(FusedAttention):
        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            return F.dropout(super().scores(q, k), 0.1, self.training)  # <- here


class Broken_on_einsum_scores(SdpaEncoder):
    class Attention(FusedAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            return torch.softmax(torch.dropout(scores, 0.2, self.training), -1)  # <- here


class Sound_behind_the_softmax(PlainEncoder):
    class Attention(ExplicitAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            return F.dropout(super().weigh(scores, keep), 0.1, self.training)


class Sound_inside_torch(WrappedEncoder):
    pass


class Sound_keys_dropped_by_minus_infinity(FusedEncoder):
    class Attention(FusedAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            if self.training:
                dropped = torch.full_like(scores, 0.1).bernoulli() * -1e4
                scores = scores + dropped
            return super().weigh(scores, keep)
