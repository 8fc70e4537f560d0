"""Encoders that draw anew in every call, and some that drew once."""

from __future__ import annotations

import random

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import (
    HEAD_DIM,
    WIDTH,
    ExplicitAttention,
    FusedEncoder,
    LengthsEncoder,
    PlainEncoder,
    TorchEncoder,
)


class Broken_noise_in_every_call(TorchEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        x = super().embed(ids)
        return x + 0.1 * torch.randn_like(x)  # <- here


class Broken_random_features_drawn_anew(PlainEncoder):
    class Attention(ExplicitAttention):
        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = super().project(x)
            turn = torch.randn(HEAD_DIM, HEAD_DIM, device=x.device, dtype=x.dtype)  # <- here
            return q @ turn, k @ turn, v


class Broken_python_draws(FusedEncoder):  # <- here
    def embed(self, frames: Tensor) -> Tensor:
        return super().embed(frames) * random.uniform(0.5, 1.5)


class Broken_jittered_positions(LengthsEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        start = int(torch.randint(0, 8, ()))  # <- here
        return self.stem(frames) + self.positions[start : start + frames.shape[1]]


class Sound_noise_while_training(TorchEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        x = super().embed(ids)
        return x + 0.1 * torch.randn_like(x) if self.training else x


class Sound_random_features_drawn_once(PlainEncoder):
    class Attention(ExplicitAttention):
        turn: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("turn", torch.linalg.qr(torch.randn(HEAD_DIM, HEAD_DIM))[0])

        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = super().project(x)
            return q @ self.turn, k @ self.turn, v


class Sound_draw_that_changes_nothing(FusedEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.shift = nn.Parameter(torch.zeros(WIDTH))

    def embed(self, frames: Tensor) -> Tensor:
        return super().embed(frames) + 0.0 * torch.rand(1, device=frames.device, dtype=frames.dtype) + self.shift
