"""Sums with another tensor than the sublayer's input, and unusual sums that are right."""

from __future__ import annotations

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


class Broken_layer_input_added_twice(PlainEncoder):
    class Layer(PostNormLayer):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            y = self.norm1(x + self.attention(x, keep))
            return self.norm2(x + self.feed(y))  # <- here


class Broken_second_sum_of_a_pre_norm_layer(SdpaEncoder):
    class Layer(PreNormLayer):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            y = x + self.attention(self.norm1(x), keep)
            return x + self.feed(self.norm2(y))  # <- here


class Broken_overwritten_by_the_norm(FusedEncoder):
    class Layer(PreNormLayer):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            x = self.norm1(x)
            x = x + self.attention(x, keep)  # <- here
            x = self.norm2(x)
            return x + self.feed(x)


class Broken_feed_forward_adds_the_normalised(TorchEncoder):
    class Layer(PreNormLayer):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            x = x + self.attention(self.norm1(x), keep)
            h = self.norm2(x)
            return h + self.feed(h)  # <- here

    def make_parts(self) -> None:
        super().make_parts()
        self.norm = nn.LayerNorm(WIDTH)

    def finish(self, x: Tensor) -> Tensor:
        return self.norm(x)


class Sound_norm_of_the_embeddings(PlainEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.first = nn.LayerNorm(WIDTH)

    def embed(self, ids: Tensor) -> Tensor:
        return self.first(super().embed(ids))


class Sound_skip_around_the_whole_layer(SdpaEncoder):
    class Layer(PreNormLayer):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            y = x + self.attention(self.norm1(x), keep)
            y = y + self.feed(self.norm2(y))
            return x + y


class Sound_sandwich(FusedEncoder):
    class Layer(PreNormLayer):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.after1, self.after2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            x = x + self.after1(self.attention(self.norm1(x), keep))
            return x + self.after2(self.feed(self.norm2(x)))
