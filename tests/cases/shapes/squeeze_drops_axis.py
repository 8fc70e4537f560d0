"""Encoders whose output loses an axis for one sample, and sound ones."""

from __future__ import annotations

from torch import Tensor

from encdoctor.cases.bases import FusedEncoder, SdpaEncoder, TorchEncoder


class Broken_pooled_and_squeezed(FusedEncoder):
    def forward(self, frames: Tensor) -> Tensor:
        """frames: (batch, time, 32) features. Returns (batch, 32)."""
        x = self.encode(self.embed(frames), None)
        return x.mean(1, keepdim=True).squeeze()  # <- here


class Broken_output_squeezed(SdpaEncoder):
    def finish(self, x: Tensor) -> Tensor:
        return self.norm(x).squeeze()  # <- here


class Broken_split_and_squeezed(TorchEncoder):
    def finish(self, x: Tensor) -> Tensor:
        return x[None].squeeze()  # <- here


class Sound_squeezes_the_pooled_axis(FusedEncoder):
    def forward(self, frames: Tensor) -> Tensor:
        """frames: (batch, time, 32) features. Returns (batch, 32)."""
        x = self.encode(self.embed(frames), None)
        return x.mean(1, keepdim=True).squeeze(1)


class Sound_indexed(SdpaEncoder):
    def finish(self, x: Tensor) -> Tensor:
        return self.norm(x)[None][0]
