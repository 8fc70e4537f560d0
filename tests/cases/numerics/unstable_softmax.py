"""Softmaxes that overflow with trained scores, and hand-written ones that do not."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import (
    VOCAB,
    WIDTH,
    ExplicitAttention,
    FusedAttention,
    FusedEncoder,
    PlainEncoder,
    TorchEncoder,
)


class Broken_exponentials_over_their_sum(PlainEncoder):
    class Attention(ExplicitAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            odds = scores.exp()  # <- here
            return odds / odds.sum(-1, keepdim=True)


class Broken_masked_exponentials(FusedEncoder):
    class Attention(FusedAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores

        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            odds = torch.exp(scores)  # <- here
            if keep is not None:
                odds = odds.masked_fill(~keep[:, None, None, :], 0.0)
            return odds / (odds.sum(dim=-1, keepdim=True) + 1e-9)


class Broken_logarithm_of_softmax(TorchEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.head = nn.Linear(WIDTH, VOCAB)

    def finish(self, x: Tensor) -> Tensor:
        return self.head(x).softmax(-1).log()  # <- here


class Sound_maximum_subtracted(PlainEncoder):
    class Attention(ExplicitAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            odds = (scores - scores.amax(-1, keepdim=True)).exp()
            return odds / odds.sum(-1, keepdim=True)


class Sound_scores_capped(FusedEncoder):
    class Attention(FusedAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            odds = (20 * torch.tanh(scores / 20)).exp()
            if keep is not None:
                odds = odds.masked_fill(~keep[:, None, None, :], 0.0)
            return odds / odds.sum(-1, keepdim=True).clamp(min=1e-6)

        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores


class Sound_log_softmax(TorchEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.head = nn.Linear(WIDTH, VOCAB)

    def finish(self, x: Tensor) -> Tensor:
        return self.head(x).log_softmax(-1)
