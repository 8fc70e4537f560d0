"""Sublayers without a way around them, and other ways around that are as good as a sum."""

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


class Broken_attention_alone(PlainEncoder):
    class Layer(PostNormLayer):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            x = self.norm1(self.attention(x, keep))  # <- here
            return self.norm2(x + self.feed(x))


class Broken_feed_forward_alone(SdpaEncoder):
    class Layer(PreNormLayer):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            x = x + self.attention(self.norm1(x), keep)
            return self.feed(self.norm2(x))  # <- here


class Broken_post_norm_feed_forward(TorchEncoder):
    class Layer(PostNormLayer):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            x = self.norm1(x + self.attention(x, keep))
            return self.norm2(self.feed(x))  # <- here


class Broken_parallel_branches(FusedEncoder):
    class Layer(PreNormLayer):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            h = self.norm1(x)
            return self.attention(h, keep) + self.feed(h)  # <- here


class Sound_highway(PlainEncoder):
    class Layer(PostNormLayer):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.gate = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            gate = torch.sigmoid(self.gate(x))
            x = self.norm1((1 - gate) * x + gate * self.attention(x, keep))
            return self.norm2(x + self.feed(x))


class Sound_parallel(FusedEncoder):
    class Layer(PreNormLayer):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            h = self.norm1(x)
            return x + self.attention(h, keep) + self.feed(h)


class Sound_layer_scale(SdpaEncoder):
    class Layer(PreNormLayer):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.scale1, self.scale2 = (nn.Parameter(torch.full((WIDTH,), 0.1)) for _ in range(2))

        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            x = x + self.scale1 * self.attention(self.norm1(x), keep)
            return x + self.scale2 * self.feed(self.norm2(x))


class Sound_stochastic_depth(SdpaEncoder):
    class Layer(PreNormLayer):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            x = x + self.skip(self.attention(self.norm1(x), keep))
            return x + self.skip(self.feed(self.norm2(x)))

        def skip(self, branch: Tensor) -> Tensor:
            if not self.training:
                return branch
            return branch * branch.new_empty(len(branch), 1, 1).bernoulli_(0.9) / 0.9
