"""Dropout on the stream, and dropout where it belongs."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from encdoctor.cases.bases import FusedEncoder, PlainEncoder, PostNormLayer, PreNormLayer, SdpaEncoder, TorchEncoder


class Broken_in_front_of_the_norm(PlainEncoder):
    class Layer(PostNormLayer):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            x = self.norm1(F.dropout(x + self.attention(x, keep), 0.1, self.training))  # <- here
            return self.norm2(F.dropout(x + self.feed(x), 0.1, self.training))


class Broken_behind_the_norm(TorchEncoder):
    class Layer(PostNormLayer):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.dropout = nn.Dropout(0.1)

        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            x = self.dropout(self.norm1(x + self.attention(x, keep)))  # <- here
            return self.norm2(x + self.feed(x))


class Broken_on_the_pre_norm_stream(SdpaEncoder):
    class Layer(PreNormLayer):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.dropout = nn.Dropout(0.1)

        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            x = self.dropout(x + self.attention(self.norm1(x), keep))  # <- here
            return self.dropout(x + self.feed(self.norm2(x)))


class Sound_on_the_branches(PlainEncoder):
    class Layer(PostNormLayer):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            x = self.norm1(x + F.dropout(self.attention(x, keep), 0.1, self.training))
            return self.norm2(x + F.dropout(self.feed(x), 0.1, self.training))


class Sound_on_embeddings_and_output(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        return F.dropout(super().embed(frames), 0.1, self.training)

    def finish(self, x: Tensor) -> Tensor:
        return F.dropout(super().finish(x), 0.1, self.training)
