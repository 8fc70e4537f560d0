"""Norms whose eps is the larger part of the divisor, and norms of small but sufficient input."""

from __future__ import annotations

from torch import Tensor, nn

from encdoctor.cases.bases import WIDTH, FusedEncoder, LengthsEncoder, PlainEncoder, PostNormLayer, SdpaEncoder


class Broken_eps_of_ten(PlainEncoder):
    class Layer(PostNormLayer):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.norm1 = nn.LayerNorm(WIDTH, eps=10.0)

        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            x = self.norm1(x + self.attention(x, keep))  # <- here
            return self.norm2(x + self.feed(x))


class Broken_tiny_input(FusedEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.input_norm = nn.LayerNorm(WIDTH)

    def embed(self, frames: Tensor) -> Tensor:
        return super().embed(self.input_norm(frames * 1e-4))  # <- here


class Broken_learned_norm_of_small_frames(LengthsEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.input_norm = nn.LayerNorm(WIDTH, eps=1e-3)

    def embed(self, frames: Tensor) -> Tensor:
        return super().embed(self.input_norm(0.01 * frames))  # <- here


class Sound_usual(SdpaEncoder):
    pass


class Sound_small_input(FusedEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.input_norm = nn.LayerNorm(WIDTH, eps=1e-6)

    def embed(self, frames: Tensor) -> Tensor:
        return super().embed(self.input_norm(frames * 0.02))
