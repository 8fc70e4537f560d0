"""Encoders that are others in half precision, and some that are merely rougher."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import FusedEncoder, LengthsEncoder, PlainEncoder, SdpaEncoder


class FarFromZero(nn.Module):
    """Centres what was shifted far away."""

    def forward(self, x: Tensor) -> Tensor:
        shifted = x + 4000
        return shifted - shifted.mean(-1, keepdim=True)


class Broken_centred_far_from_zero(FusedEncoder):  # <- in far
    def make_parts(self) -> None:
        super().make_parts()
        self.far = FarFromZero()

    def embed(self, frames: Tensor) -> Tensor:
        return self.far(super().embed(frames))


class Difference(nn.Module):
    """Takes a small difference of large numbers."""

    def forward(self, x: Tensor) -> Tensor:
        return ((x + 1000.0) - 1000.0) * 4


class Broken_cancellation(LengthsEncoder):  # <- in centre
    def make_parts(self) -> None:
        super().make_parts()
        self.centre = Difference()

    def embed(self, frames: Tensor) -> Tensor:
        return super().embed(self.centre(0.1 * frames))


class Squares(nn.Module):
    """Nearly the identity, as a difference of squares."""

    def forward(self, x: Tensor) -> Tensor:
        return ((0.1 * x + 100).square() - 1e4) / 20


class Broken_difference_of_squares(SdpaEncoder):  # <- in squares
    def make_parts(self) -> None:
        super().make_parts()
        self.squares = Squares()

    def embed(self, ids: Tensor) -> Tensor:
        return self.squares(super().embed(ids))


class Sound_usual(PlainEncoder):
    pass


class InFloat32(FarFromZero):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(torch.promote_types(x.dtype, torch.float32))).to(x.dtype)


class Sound_centred_in_float32(FusedEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.far = InFloat32()

    def embed(self, frames: Tensor) -> Tensor:
        return self.far(super().embed(frames))
