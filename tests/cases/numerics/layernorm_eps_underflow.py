"""Norms that divide by zero, and norms that do not."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import WIDTH, FusedEncoder, PlainEncoder, PostNormLayer, PreNormLayer, SdpaEncoder


class RootMeanSquare(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * x.pow(2).mean(-1, keepdim=True).rsqrt()


class Broken_no_eps(SdpaEncoder):  # <- in layers.*.norm1
    class Layer(PreNormLayer):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.norm1 = RootMeanSquare()  # type: ignore[assignment]


class StandardDeviation(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)


class Broken_divided_by_the_deviation(PlainEncoder):  # <- in layers.*.norm2
    class Layer(PostNormLayer):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.norm2 = StandardDeviation()  # type: ignore[assignment]


class UnitLength(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.full((WIDTH,), WIDTH**0.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)


class Broken_unit_length(FusedEncoder):  # <- in norm
    def make_parts(self) -> None:
        super().make_parts()
        self.norm = UnitLength()  # type: ignore[assignment]


class WithEps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * x * (x.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt()


class Sound_usual_eps(SdpaEncoder):
    class Layer(PreNormLayer):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.norm1, self.norm2 = WithEps(), WithEps()  # type: ignore[assignment]


class InFloat32(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        wide = x.double() if x.dtype is torch.float64 else x.float()
        return (wide * (wide.pow(2).mean(-1, keepdim=True) + 1e-12).rsqrt()).to(x.dtype)


class Sound_statistics_in_float32(FusedEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.norm = InFloat32()  # type: ignore[assignment]


class Sound_small_eps_of_torch(PlainEncoder):
    class Layer(PostNormLayer):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH, eps=1e-12), nn.LayerNorm(WIDTH, eps=1e-12)
