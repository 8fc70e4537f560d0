"""Outputs that the input does not reach, and outputs that it hardly moves."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import (
    WIDTH,
    FusedEncoder,
    PlainEncoder,
    SdpaEncoder,
    TorchEncoder,
    WrappedEncoder,
)


class Broken_class_token_from_before(FusedEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.first = nn.Parameter(torch.randn(1, 1, WIDTH))

    def encode(self, x: Tensor, keep: Tensor | None) -> Tensor:
        first = self.first.expand(len(x), -1, -1)
        super().encode(x + first, keep)
        return self.norm(first[:, 0])  # <- here


class Broken_multiplied_by_zero(PlainEncoder):
    def finish(self, x: Tensor) -> Tensor:
        return x * 0 + self.tokens.weight.mean(0)  # <- here


class Broken_queries_only(TorchEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.queries = nn.Parameter(torch.randn(4, WIDTH))

    def finish(self, x: Tensor) -> Tensor:
        queries = self.queries.expand(len(x), -1, -1)
        return queries.softmax(-1).mean(1)  # <- here


class Broken_norm_over_one_feature(SdpaEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.score = nn.Linear(WIDTH, 1)
        self.score_norm = nn.LayerNorm(1)

    def finish(self, x: Tensor) -> Tensor:
        return self.score_norm(self.score(super().finish(x)))  # <- here


class Sound_small_signal(PlainEncoder):
    def finish(self, x: Tensor) -> Tensor:
        return 1e-4 * x + self.tokens.weight.mean(0)


class Sound_class_token(FusedEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.first = nn.Parameter(torch.randn(1, 1, WIDTH))

    def encode(self, x: Tensor, keep: Tensor | None) -> Tensor:
        x = torch.cat((self.first.expand(len(x), -1, -1), x), 1)
        if keep is not None:
            keep = torch.cat((keep[:, :1], keep), 1)
        return super().encode(x, keep)[:, 0]


class Sound_learned_queries(WrappedEncoder):
    def __init__(self) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(2, WIDTH))

    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        x = super().encode(x, padding)
        scores = (x @ self.queries.t()).masked_fill(padding[..., None], torch.finfo(x.dtype).min)
        return (scores.softmax(1).transpose(1, 2) @ x).flatten(1)
