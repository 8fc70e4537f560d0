"""Weights that no longer sum to one, and encoders that leave them so on purpose."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import (
    HEAD_DIM,
    HEADS,
    ExplicitAttention,
    FusedAttention,
    FusedEncoder,
    PlainEncoder,
    SdpaEncoder,
)


class Broken_second_softmax(PlainEncoder):
    class Attention(ExplicitAttention):
        def mix(self, weights: Tensor, v: Tensor) -> Tensor:
            return weights.softmax(-1) @ v  # <- here


class Broken_weights_divided_by_heads(FusedEncoder):
    class Attention(FusedAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            weights = super().weigh(scores, keep)
            return weights / HEADS  # <- here


class Broken_scaled_on_both_sides(SdpaEncoder):
    class Attention(FusedAttention):
        def mix(self, weights: Tensor, v: Tensor) -> Tensor:
            shrunk = weights * HEAD_DIM**-0.5  # <- here
            return torch.einsum("bhqk,bhkd->bhqd", shrunk, v)


class Broken_squashed_weights(PlainEncoder):
    class Attention(ExplicitAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            weights = super().weigh(scores, keep)
            return torch.sigmoid(weights)  # <- here


class Sound_gated_heads(PlainEncoder):
    class Attention(ExplicitAttention):
        def __init__(self) -> None:
            super().__init__()
            self.gates = nn.Parameter(torch.linspace(0.5, 1.5, HEADS))

        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            return super().weigh(scores, keep) * self.gates[:, None, None]


class Sound_talking_heads(FusedEncoder):
    class Attention(FusedAttention):
        def __init__(self) -> None:
            super().__init__()
            self.talk = nn.Parameter(torch.eye(HEADS) + 0.1 * torch.randn(HEADS, HEADS))

        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            return torch.einsum("bhqk,hg->bgqk", super().weigh(scores, keep), self.talk)


class Sound_attention_sink(PlainEncoder):
    """A learned score that takes its share and is dropped again."""

    class Attention(ExplicitAttention):
        def __init__(self) -> None:
            super().__init__()
            self.sink = nn.Parameter(torch.zeros(HEADS))

        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            sink = self.sink[:, None, None].expand(*scores.shape[:3], 1)
            return torch.cat((scores, sink), -1).softmax(-1)[..., :-1]


class Sound_off_by_one_softmax(PlainEncoder):
    class Attention(ExplicitAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            top = scores.amax(-1, keepdim=True).clamp(min=0.0)
            odds = (scores - top).exp()
            return odds / (odds.sum(-1, keepdim=True) + (-top).exp())


class Sound_scores_divided_once(FusedEncoder):
    class Attention(FusedAttention):
        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            return q @ k.mT / math.sqrt(HEAD_DIM)
