"""Streams that the gradient fades in, and small gains that it passes by."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import (
    WIDTH,
    FusedEncoder,
    PlainEncoder,
    PreNormLayer,
    SdpaEncoder,
    TorchEncoder,
    WrappedEncoder,
)


class Broken_gain_on_the_stream(FusedEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.gain = nn.Parameter(torch.full((WIDTH,), 1e-4))

    def finish(self, x: Tensor) -> Tensor:
        return self.norm(x) * self.gain  # <- here


class Broken_stem_of_sigmoids(PlainEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.stem = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Sigmoid()) for _ in range(6)))

    def embed(self, ids: Tensor) -> Tensor:
        x = self.stem(self.look_up(ids))  # <- here
        return x + self.table[: ids.shape[1]]


class Broken_tiny_last_projection(TorchEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)
        nn.init.normal_(self.head.weight, std=1e-5)

    def finish(self, x: Tensor) -> Tensor:
        return self.head(x)  # <- here


class Broken_output_in_other_units(WrappedEncoder):
    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        return super().encode(x, padding) * 1e-4  # <- here


class Sound_gain_on_the_branch(SdpaEncoder):
    class Layer(PreNormLayer):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.gain = nn.Parameter(torch.full((WIDTH,), 1e-4))

        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            x = x + self.gain * self.attention(self.norm1(x), keep)
            return x + self.gain * self.feed(self.norm2(x))


class Sound_gate_closed_at_the_start(FusedEncoder):
    class Layer(PreNormLayer):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.gate = nn.Parameter(torch.zeros(()))

        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            x = x + self.gate * self.attention(self.norm1(x), keep)
            return x + self.gate * self.feed(self.norm2(x))


class Sound_rescaled_before_a_norm(FusedEncoder):
    def finish(self, x: Tensor) -> Tensor:
        return self.norm(x * 100.0)


class Sound_twelve_layers(PlainEncoder):
    def make_layers(self) -> nn.ModuleList:
        return nn.ModuleList([self.Layer(self.Attention()) for _ in range(12)])
