"""Encoders that cannot tell eight samples apart, and some that only look as if they could not."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import (
    WIDTH,
    FusedEncoder,
    PlainEncoder,
    SdpaEncoder,
    WrappedEncoder,
)


class Broken_under_an_offset(PlainEncoder):  # <- here
    def finish(self, x: Tensor) -> Tensor:
        return 0.005 * x + 60_000


class Broken_another_unit(FusedEncoder):  # <- here
    def finish(self, x: Tensor) -> Tensor:
        return torch.addcmul(torch.full_like(x, 6e4), super().finish(x), torch.full_like(x, 0.004))


class Broken_moved_towards_a_constant(SdpaEncoder):  # <- here
    def finish(self, x: Tensor) -> Tensor:
        x = super().finish(x)
        return torch.lerp(torch.full_like(x, 6e4), x, 0.004)


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
