"""Weights that are filled, and weights that are zero or tied by design."""

from __future__ import annotations

from torch import nn

from encdoctor.cases.bases import (
    WIDTH,
    FusedEncoder,
    PlainEncoder,
    PostNormLayer,
    PreNormLayer,
    SdpaEncoder,
    TorchEncoder,
)


class Broken_constant(PlainEncoder):
    class Layer(PostNormLayer):
        def make_feed(self) -> nn.Module:
            up, down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
            nn.init.constant_(up.weight, 0.05)  # <- here
            nn.init.zeros_(up.bias)
            return nn.Sequential(up, nn.GELU(), down)


class Broken_repeated_rows(SdpaEncoder):
    class Layer(PreNormLayer):
        def make_feed(self) -> nn.Module:
            up, down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
            up.weight.data.copy_(up.weight.data[:1].clone())
            nn.init.zeros_(up.bias)  # <- here
            return nn.Sequential(up, nn.GELU(), down)


class Broken_ones(TorchEncoder):
    class Layer(PostNormLayer):
        def make_feed(self) -> nn.Module:
            up, down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
            nn.init.constant_(down.weight, 0.02)  # <- here
            return nn.Sequential(up, nn.GELU(), down)


class Sound_zero_at_the_end(FusedEncoder):
    class Layer(PreNormLayer):
        def make_feed(self) -> nn.Module:
            up, down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
            nn.init.zeros_(down.weight)
            return nn.Sequential(up, nn.GELU(), down)


class Sound_some_rows_tied(PlainEncoder):
    class Layer(PostNormLayer):
        def make_feed(self) -> nn.Module:
            up, down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
            up.weight.data[:8] = up.weight.data[8:16].clone()
            return nn.Sequential(up, nn.GELU(), down)
