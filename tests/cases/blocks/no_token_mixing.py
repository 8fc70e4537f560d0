"""Attention that is computed and dropped, and attention that is there but does not show."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import FusedEncoder, PlainEncoder, PostNormLayer, PreNormLayer, SdpaEncoder, TorchEncoder


class Broken_adds_what_went_in(PlainEncoder):
    class Layer(PostNormLayer):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            self.attention(x, keep)
            x = self.norm1(x + x)  # <- here
            return self.norm2(x + self.feed(x))


class Broken_adds_the_normalised(SdpaEncoder):
    class Layer(PreNormLayer):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            h = self.norm1(x)
            a = self.attention(h, keep)
            x = x + h  # <- here
            a = self.feed(self.norm2(x))
            return x + a


class Broken_forgotten(TorchEncoder):
    class Layer(PostNormLayer):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            a = self.attention(x, keep)
            a = self.feed(x)
            return self.norm2(x + a)  # <- here


class Sound_gate_at_zero(FusedEncoder):
    class Layer(PreNormLayer):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.gate = nn.Parameter(torch.zeros(()))

        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            x = x + self.gate * self.attention(self.norm1(x), keep)
            return x + self.feed(self.norm2(x))


class Sound_small_scale(SdpaEncoder):
    class Layer(PreNormLayer):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.scale = nn.Parameter(torch.tensor(1e-4))

        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            x = x + self.scale * self.attention(self.norm1(x), keep)
            return x + self.feed(self.norm2(x))
