"""Encoders that cannot stand zeros in the padding, and some that can."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import WIDTH, FusedEncoder, LengthsEncoder, PostNormLayer, SequenceFirstEncoder


class Broken_divided_by_the_norm(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        return super().embed(frames / frames.norm(dim=-1, keepdim=True))  # <- here


class Broken_logarithm_of_the_energy(LengthsEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        energy = frames.square().mean(-1, keepdim=True).log()
        return super().embed(frames) * torch.sigmoid(energy) + energy.clamp(max=0) * 0.0  # <- here


class Broken_standardised_without_eps(SequenceFirstEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        spread = frames.std(-1, keepdim=True)
        return super().embed((frames - frames.mean(-1, keepdim=True)) / spread)  # <- here


class Sound_clamped(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        return super().embed(frames / frames.norm(dim=-1, keepdim=True).clamp(min=1e-6))


class Sound_layer_norm_first(LengthsEncoder):
    Layer: type[PostNormLayer] = PostNormLayer

    def make_parts(self) -> None:
        super().make_parts()
        self.first = nn.LayerNorm(WIDTH)

    def embed(self, frames: Tensor) -> Tensor:
        return super().embed(self.first(frames))
