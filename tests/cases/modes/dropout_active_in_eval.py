"""Dropout that does not stop in eval mode, and dropout that does."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encdoctor.cases.bases import (
    ExplicitAttention,
    PlainEncoder,
    PreNormLayer,
    SdpaAttention,
    SdpaEncoder,
    TorchEncoder,
    WrappedEncoder,
)


class Broken_functional_default(PlainEncoder):
    class Attention(ExplicitAttention):
        def mix(self, weights: Tensor, v: Tensor) -> Tensor:
            weights = F.dropout(weights, 0.1)  # <- here
            return weights @ v


class Broken_rate_for_fused_attention(SdpaEncoder):
    class Attention(SdpaAttention):
        def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.1)  # <- here


def drop_path(x: Tensor, rate: float, training: bool) -> Tensor:
    if not training:
        return x
    kept = torch.rand(x.shape[0], 1, 1, device=x.device, dtype=x.dtype) >= rate
    return x * kept / (1 - rate)


class Broken_drop_path_always_told_to(SdpaEncoder):
    class Layer(PreNormLayer):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            x = x + self.attention(self.norm1(x), keep)
            return x + drop_path(self.feed(self.norm2(x)), 0.3, True)  # <- here


class Broken_switched_back_on(TorchEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.drop = nn.Dropout(0.2)

    def embed(self, ids: Tensor) -> Tensor:
        self.drop.train()
        return self.drop(super().embed(ids))  # <- here


class Sound_module_knows_the_mode(WrappedEncoder):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.2)

    def embed(self, ids: Tensor) -> Tensor:
        return self.drop(super().embed(ids))


class Sound_drop_path_told_the_mode(SdpaEncoder):
    class Layer(PreNormLayer):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            x = x + self.attention(self.norm1(x), keep)
            return x + drop_path(self.feed(self.norm2(x)), 0.3, self.training)


class Sound_monte_carlo(PlainEncoder):
    """Monte Carlo dropout: several passes in eval mode measure how certain the encoder is."""

    def finish(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.1)
