"""Weights that are masked too late, and some that are made whole again."""

from __future__ import annotations

import torch
from torch import Tensor

from encdoctor.cases.bases import (
    ExplicitAttention,
    FusedAttention,
    FusedEncoder,
    LengthsEncoder,
    PlainEncoder,
    SdpaEncoder,
)


class Broken_weights_multiplied(PlainEncoder):
    class Attention(ExplicitAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores

        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            weights = scores.softmax(-1)
            return weights if keep is None else weights * keep[:, None, None, :]  # <- here


class Broken_weights_filled(FusedEncoder):
    class Attention(FusedAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores.softmax(-1).masked_fill(~keep[:, None, None, :], 0.0)  # <- here

        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            return scores if keep is not None else scores.softmax(-1)


class Broken_where_behind_the_softmax(SdpaEncoder):
    class Attention(FusedAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores

        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            weights = torch.softmax(scores, dim=-1)
            if keep is None:
                return weights
            return torch.where(
                keep[:, None, None, :], weights, torch.zeros((), dtype=weights.dtype, device=weights.device)
            )  # <- here


class Sound_divided_by_their_sum(PlainEncoder):
    class Attention(ExplicitAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores

        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            weights = scores.softmax(-1)
            if keep is not None:
                weights = weights * keep[:, None, None, :]
            return weights / weights.sum(-1, keepdim=True).clamp(min=1e-9)


class Sound_masked_before_and_after(LengthsEncoder):
    class Attention(FusedAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            weights = scores.softmax(-1)
            return weights if keep is None else weights * keep[:, None, None, :]
