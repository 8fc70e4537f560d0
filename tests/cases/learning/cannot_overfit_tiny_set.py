"""Encoders that cannot tell eight samples apart, and some that only look as if they could not."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encdoctor.cases.bases import (
    WIDTH,
    FusedEncoder,
    PlainEncoder,
    SdpaEncoder,
    TorchEncoder,
    WrappedEncoder,
)


class Broken_tokens_overwritten(PlainEncoder):  # <- here
    def embed(self, ids: Tensor) -> Tensor:
        hidden = torch.zeros_like(self.look_up(ids))
        return hidden + self.table[: ids.shape[1]]


class Broken_norm_over_one_number(FusedEncoder):  # <- here
    def make_parts(self) -> None:
        super().make_parts()
        self.score = nn.Linear(WIDTH, 1)
        self.score_norm = nn.LayerNorm(1)

    def finish(self, x: Tensor) -> Tensor:
        return self.score_norm(self.score(x)) + self.positions[: x.shape[1]]


class Broken_softmax_of_one_number(SdpaEncoder):  # <- here
    def make_parts(self) -> None:
        super().make_parts()
        self.gate = nn.Linear(WIDTH, 1)

    def finish(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        return self.gate(super().finish(x)).softmax(-1) * self.positions(places)


class Broken_ids_clipped_to_one(TorchEncoder):  # <- here
    def embed(self, ids: Tensor) -> Tensor:
        return super().embed(ids.clamp(0, 1))


class Broken_dead_rectifier(WrappedEncoder):  # <- here
    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        return F.relu(super().encode(x, padding) - 20.0) + self.positions(places)


class Sound_small_outputs(PlainEncoder):
    def encode(self, x: Tensor, keep: Tensor | None) -> Tensor:
        return super().encode(x, keep) * 0.05


class Sound_tokens_frozen(SdpaEncoder):
    """Its token vectors are frozen."""

    def make_parts(self) -> None:
        super().make_parts()
        self.tokens.requires_grad_(False)


class Sound_much_dropout(WrappedEncoder):
    def make_layer(self) -> nn.TransformerEncoderLayer:
        return nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.5, batch_first=True)
