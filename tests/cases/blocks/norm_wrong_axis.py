"""Norms over the sequence, and norms over the features written in other ways."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import (
    WIDTH,
    FusedEncoder,
    PlainEncoder,
    PostNormLayer,
    PreNormLayer,
    SdpaEncoder,
    TorchEncoder,
)


class TimeNorm(nn.Module):
    """Over the wrong axis of (B, S, D)."""

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)  # <- here
        return (x - mean) / (x.var(1, keepdim=True) + 1e-5).sqrt()


class Broken_hand_written(SdpaEncoder):
    class Layer(PreNormLayer):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.norm2 = TimeNorm()  # type: ignore[assignment]  # <- in layers.*


class Broken_group_norm(FusedEncoder):
    class Layer(PreNormLayer):
        class OverTime(nn.GroupNorm):
            def forward(self, x: Tensor) -> Tensor:
                return super().forward(x.transpose(1, 2)).transpose(1, 2)  # <- here

        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.norm1 = self.OverTime(4, WIDTH)  # type: ignore[assignment]


class Broken_root_mean_square(PlainEncoder):
    class Layer(PostNormLayer):
        class OverBoth(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return x * torch.rsqrt(x.square().mean((1, 2), keepdim=True) + 1e-5)  # <- here

        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.norm1, self.norm2 = self.OverBoth(), self.OverBoth()  # type: ignore[assignment]


class Sound_over_features(TorchEncoder):
    class Layer(PostNormLayer):
        class OverFeatures(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                centred = x - x.mean(2, keepdim=True)
                return centred / (centred.square().mean(2, keepdim=True) + 1e-5).sqrt()

        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.norm1, self.norm2 = self.OverFeatures(), self.OverFeatures()  # type: ignore[assignment]


class Sound_groups_of_features(FusedEncoder):
    class Layer(PreNormLayer):
        class Grouped(nn.GroupNorm):
            def forward(self, x: Tensor) -> Tensor:
                return super().forward(x.flatten(0, 1)).reshape(x.shape)

        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.norm1 = self.Grouped(4, WIDTH)  # type: ignore[assignment]
