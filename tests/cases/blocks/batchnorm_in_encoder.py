"""Batch norm on the token stream, and batch norm where it is usual."""

from __future__ import annotations

from torch import Tensor, nn

from encdoctor.cases.bases import WIDTH, FusedEncoder, PlainEncoder, PostNormLayer, PreNormLayer, SdpaEncoder


class ChannelNorm(nn.BatchNorm1d):
    """Batch norm of (B, S, D) over the features."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


class Broken_post_norm(PlainEncoder):
    class Layer(PostNormLayer):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.norm1, self.norm2 = ChannelNorm(WIDTH), ChannelNorm(WIDTH)  # type: ignore[assignment]  # <- in layers.*


class Broken_pre_norm(SdpaEncoder):
    class Layer(PreNormLayer):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.norm1 = ChannelNorm(WIDTH)  # type: ignore[assignment]  # <- in layers.*


class Broken_before_the_feed_forward(FusedEncoder):
    class Layer(PreNormLayer):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.flat = nn.BatchNorm1d(WIDTH)

        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            x = x + self.attention(self.norm1(x), keep)
            h = self.flat(x.flatten(0, 1)).reshape(x.shape)  # <- here
            return x + self.feed(h)


class Sound_frozen_statistics(SdpaEncoder):
    """Running statistics only, in both modes."""

    class Layer(PreNormLayer):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.norm1 = ChannelNorm(WIDTH)  # type: ignore[assignment]

        def train(self, mode: bool = True) -> Sound_frozen_statistics.Layer:
            super().train(mode)
            self.norm1.eval()
            return self


class Sound_group_of_one(FusedEncoder):
    """Group norm of each token."""

    class Layer(PreNormLayer):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.grouped = nn.GroupNorm(4, WIDTH)

        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            h = self.grouped(x.flatten(0, 1)).reshape(x.shape)
            x = x + self.attention(h, keep)
            return x + self.feed(self.norm2(x))
