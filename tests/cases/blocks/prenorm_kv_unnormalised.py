"""Norms that act on queries alone, and norms that act on all three."""

from __future__ import annotations

from torch import Tensor, nn

from encdoctor.cases.bases import (
    WIDTH,
    ExplicitAttention,
    FusedEncoder,
    PreNormLayer,
    SdpaAttention,
    SdpaEncoder,
    TorchAttention,
    TorchEncoder,
)


class NormFirst(PreNormLayer):
    """Leaves the norm to the attention."""

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        x = x + self.attention(x, keep)
        return x + self.feed(self.norm2(x))

    def __init__(self, attention: nn.Module) -> None:
        super().__init__(attention)
        del self.norm1


class Broken_query_alone(FusedEncoder):
    Layer = NormFirst

    class Attention(ExplicitAttention):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(WIDTH)

        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q = self.query(self.norm(x))  # <- here
            return self.split_heads(q), self.split_heads(self.key(x)), self.split_heads(self.value(x))


class Broken_torch_attention(TorchEncoder):
    Layer = NormFirst

    class Attention(TorchAttention):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(WIDTH)

        def attend(self, x: Tensor, padding: Tensor | None) -> Tensor:
            h = self.norm(x)
            mixed, _ = self.heads(h, x, x, key_padding_mask=padding, need_weights=False)  # <- here
            return mixed

    def make_parts(self) -> None:
        super().make_parts()
        self.norm = nn.LayerNorm(WIDTH)

    def finish(self, x: Tensor) -> Tensor:
        return self.norm(x)


class Broken_values_raw(SdpaEncoder):
    Layer = NormFirst

    class Attention(SdpaAttention):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(WIDTH)
            self.qk, self.v = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH)
            del self.qkv

        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k = self.qk(self.norm(x)).chunk(2, -1)  # <- here
            return self.split_heads(q), self.split_heads(k), self.split_heads(self.v(x))


class Sound_norm_inside(FusedEncoder):
    Layer = NormFirst

    class Attention(ExplicitAttention):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(WIDTH)

        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return super().project(self.norm(x))


class Sound_query_and_key_norm(SdpaEncoder):
    class Attention(SdpaAttention):
        def __init__(self) -> None:
            super().__init__()
            self.q_norm, self.k_norm = nn.LayerNorm(WIDTH // 4), nn.LayerNorm(WIDTH // 4)

        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = super().project(x)
            return self.q_norm(q), self.k_norm(k), v
