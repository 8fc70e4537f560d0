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


class Broken_signal_drowned(PlainEncoder):  # <- here
    def finish(self, x: Tensor) -> Tensor:
        return 3e-8 * x + self.tokens.weight.mean(0)


class Broken_softmax_of_tiny_scores(FusedEncoder):  # <- here
    def finish(self, x: Tensor) -> Tensor:
        return (super().finish(x) * 1e-8).softmax(-1)


class Broken_squashed(SdpaEncoder):  # <- here
    def finish(self, x: Tensor) -> Tensor:
        return torch.sigmoid(3e-8 * super().finish(x))


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
