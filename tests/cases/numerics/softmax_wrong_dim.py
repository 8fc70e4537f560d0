"""Softmax over the wrong axis, and over unusual axes that are the right ones."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import (
    WIDTH,
    ExplicitAttention,
    FusedAttention,
    FusedEncoder,
    PlainEncoder,
    TorchEncoder,
)


class Broken_over_queries(PlainEncoder):
    class Attention(ExplicitAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            return scores.softmax(-2)  # <- here


class Broken_over_heads(FusedEncoder):
    class Attention(FusedAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            return scores.softmax(dim=1)  # <- here


class Broken_exponentials_summed_over_queries(PlainEncoder):
    class Attention(ExplicitAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            odds = (scores - scores.amax(-2, keepdim=True)).exp()
            return odds / odds.sum(2, keepdim=True)  # <- here


class Broken_pooling_over_an_axis_of_one(TorchEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.score = nn.Linear(WIDTH, 1)

    def forward(self, ids: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """ids: (B, S) token ids. key_padding_mask: (B, S) bool, True at padding, as torch has it."""
        x = self.encode(self.embed(ids), None if key_padding_mask is None else ~key_padding_mask)
        weights = self.score(x).softmax(dim=-1)  # <- here
        if key_padding_mask is not None:
            weights = weights.masked_fill(key_padding_mask[..., None], 0.0)
        return (weights * x).sum(1)


class Sound_keys_first(FusedEncoder):
    """Scores are laid out as (B, H, K, Q)."""

    class Attention(FusedAttention):
        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            return super().scores(q, k).transpose(-2, -1)

        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores.masked_fill(~keep[:, None, :, None], torch.finfo(scores.dtype).min)

        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            return scores.softmax(-2)

        def mix(self, weights: Tensor, v: Tensor) -> Tensor:
            return torch.einsum("bhkq,bhkd->bhqd", weights, v)


class Sound_pooling_over_positions(TorchEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.score = nn.Linear(WIDTH, 1)

    def forward(self, ids: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """ids: (B, S) token ids. key_padding_mask: (B, S) bool, True at padding, as torch has it."""
        x = self.encode(self.embed(ids), None if key_padding_mask is None else ~key_padding_mask)
        scores = self.score(x)
        if key_padding_mask is not None:
            scores = scores.masked_fill(key_padding_mask[..., None], torch.finfo(scores.dtype).min)
        return (scores.softmax(dim=1) * x).sum(1)


class Sound_experts_of_one(PlainEncoder):
    """A router with a single expert gives weight 1, and sums over experts."""

    def make_parts(self) -> None:
        super().make_parts()
        self.router, self.expert = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, WIDTH)

    def finish(self, x: Tensor) -> Tensor:
        shares = self.router(x).softmax(-1)
        return x + (shares[..., None] * self.expert(x)[:, :, None]).sum(2)
