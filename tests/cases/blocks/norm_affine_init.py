"""Gains that start at zero where they close the stream, and gains that may."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import WIDTH, FusedEncoder, PlainEncoder, PostNormLayer, PreNormLayer, SdpaEncoder


class Broken_final_norm(SdpaEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        nn.init.zeros_(self.norm.weight)  # <- here


class Broken_post_norm(PlainEncoder):
    class Layer(PostNormLayer):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            nn.init.zeros_(self.norm2.weight)  # <- in layers.*
            nn.init.normal_(self.norm2.bias, std=0.02)


class ZeroRms(nn.Module):
    """Root mean square norm with a gain of zero."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class Broken_hand_written(FusedEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.norm = ZeroRms()  # type: ignore[assignment]  # <- in norm


class Sound_end_of_the_branch(FusedEncoder):
    class Layer(PreNormLayer):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.after = nn.LayerNorm(WIDTH)
            nn.init.zeros_(self.after.weight)

        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            x = x + self.attention(self.norm1(x), keep)
            return x + self.after(self.feed(self.norm2(x)))


class OffsetRms(ZeroRms):
    """The gain is kept as its distance from one."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * (1 + self.weight)


class Sound_offset_from_one(SdpaEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.norm = OffsetRms()  # type: ignore[assignment]
