"""Streams that amplify every small change, and gradients that are large for a harmless reason."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import (
    WIDTH,
    FusedEncoder,
    PlainEncoder,
    PostNormLayer,
    SdpaEncoder,
    TorchEncoder,
    WrappedEncoder,
)


class Sine(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(30 * x)


class Broken_stem_of_sines_with_the_wrong_start(SdpaEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.stem = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), Sine()) for _ in range(4)))

    def embed(self, ids: Tensor) -> Tensor:
        x = self.stem(self.tokens(ids))  # <- in stem.*
        return x + self.positions(torch.arange(ids.shape[1], device=ids.device))


class Broken_stem_of_unit_variance(PlainEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.stem = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(24)))
        for name, parameter in self.stem.named_parameters():
            if name.endswith("weight"):
                nn.init.normal_(parameter)

    def embed(self, ids: Tensor) -> Tensor:
        x = self.stem(self.look_up(ids))  # <- here
        return x + self.table[: ids.shape[1]]


class Broken_angles_wrapped(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        x = super().embed(frames)
        for _ in range(3):
            x = torch.sin(50 * x)  # <- here
        return x


class Broken_squash_before_torch(WrappedEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        return torch.cos(1e4 * super().embed(ids))  # <- here


class Sound_small_vectors_before_a_norm(PlainEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.embedding_norm = nn.LayerNorm(WIDTH, eps=1e-12)

    def embed(self, ids: Tensor) -> Tensor:
        return self.embedding_norm(super().embed(ids) * 1e-4)


class Sound_large_weights_behind_a_norm(TorchEncoder):
    class Layer(PostNormLayer):
        def make_feed(self) -> nn.Module:
            feed = nn.Linear(WIDTH, WIDTH)
            nn.init.normal_(feed.weight, std=4.0)
            return feed


class Sound_twelve_layers_before_the_norm(FusedEncoder):
    def make_layers(self) -> nn.ModuleList:
        return nn.ModuleList([self.Layer(self.Attention()) for _ in range(12)])
