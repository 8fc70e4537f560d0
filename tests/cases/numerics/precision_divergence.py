"""Encoders that are others in half precision, and some that are merely rougher."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import WIDTH, FusedEncoder, LengthsEncoder, PlainEncoder, SdpaEncoder


class FarPositions(nn.Module):
    """Positions in milliseconds, which half precision cannot tell apart."""

    def forward(self, x: Tensor) -> Tensor:
        clock = 5000 + torch.arange(x.shape[1], device=x.device)
        clock = clock.to(x.dtype)
        return 3 * torch.stack((clock.sin(), clock.cos()), -1).repeat(1, x.shape[-1] // 2) + 0.1 * x


class Broken_collided_positions(FusedEncoder):  # <- in clock
    def make_parts(self) -> None:
        super().make_parts()
        self.clock = FarPositions()

    def embed(self, frames: Tensor) -> Tensor:
        return self.clock(self.stem(frames))


class Difference(nn.Module):
    """Takes a small difference of large numbers."""

    def forward(self, x: Tensor) -> Tensor:
        return ((x + 1000.0) - 1000.0) * 4


class Broken_cancellation(LengthsEncoder):  # <- in centre
    def make_parts(self) -> None:
        super().make_parts()
        self.centre = Difference()

    def embed(self, frames: Tensor) -> Tensor:
        return self.centre(0.1 * frames)


class Sinus(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(900 * x)


class Broken_fast_sinus(SdpaEncoder):  # <- in waves
    def make_parts(self) -> None:
        super().make_parts()
        self.waves = Sinus()

    def embed(self, ids: Tensor) -> Tensor:
        return self.waves(super().embed(ids))


class Sound_usual(PlainEncoder):
    pass


class Sound_angles_in_float32(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        wide = torch.float64 if frames.dtype is torch.float64 else torch.float32
        clock = 5000.0 + torch.arange(frames.shape[1], device=frames.device, dtype=wide)
        return self.stem(frames) + torch.stack((clock.sin(), clock.cos()), -1).repeat(1, WIDTH // 2).to(frames.dtype)
