"""Feed-forwards that are one affine map, and others whose non-linearity stands somewhere else."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encdoctor.cases.bases import (
    HEADS,
    WIDTH,
    FusedEncoder,
    PlainEncoder,
    PostNormLayer,
    PreNormLayer,
    SdpaEncoder,
    TorchEncoder,
    WrappedEncoder,
)


class Broken_two_maps(PlainEncoder):
    class Layer(PostNormLayer):
        def make_feed(self) -> nn.Module:
            return nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH))

        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            x = self.norm1(x + self.attention(x, keep))
            return self.norm2(x + self.feed(x))  # <- here


class Feed(nn.Module):
    """Two maps as attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)


class Broken_dropout_is_no_activation(SdpaEncoder):
    class Layer(PreNormLayer):
        class Flat(Feed):
            def forward(self, x: Tensor) -> Tensor:
                return self.down(F.dropout(self.up(x), 0.1, self.training))  # <- here

        def make_feed(self) -> nn.Module:
            return self.Flat()


class Broken_identity_activation(WrappedEncoder):
    def make_layer(self) -> nn.TransformerEncoderLayer:
        return nn.TransformerEncoderLayer(  # <- in encoder.*
            WIDTH, HEADS, 2 * WIDTH, dropout=0.1, activation=nn.Identity(), batch_first=True
        )


class Broken_gate_without_activation_or_product(FusedEncoder):
    class Layer(PreNormLayer):
        class Added(Feed):
            def __init__(self) -> None:
                super().__init__()
                self.gate = nn.Linear(WIDTH, 4 * WIDTH)

            def forward(self, x: Tensor) -> Tensor:
                return self.down(self.up(x) + self.gate(x))  # <- here

        def make_feed(self) -> nn.Module:
            return self.Added()


class Sound_bilinear_gate(TorchEncoder):
    class Layer(PostNormLayer):
        class Gated(Feed):
            def __init__(self) -> None:
                super().__init__()
                self.gate = nn.Linear(WIDTH, 4 * WIDTH)

            def forward(self, x: Tensor) -> Tensor:
                return self.down(self.up(x) * self.gate(x))

        def make_feed(self) -> nn.Module:
            return self.Gated()


class Sound_low_rank_map(PlainEncoder):
    class Layer(PostNormLayer):
        def make_feed(self) -> nn.Module:
            return nn.Sequential(
                nn.Linear(WIDTH, 8, bias=False), nn.Linear(8, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)
            )


class Sound_written_out_gelu(SdpaEncoder):
    class Layer(PreNormLayer):
        class Written(Feed):
            def forward(self, x: Tensor) -> Tensor:
                h = self.up(x)
                return self.down(0.5 * h * (1 + torch.erf(h / 2**0.5)))

        def make_feed(self) -> nn.Module:
            return self.Written()
