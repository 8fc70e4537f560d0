"""Encoders to which order means nothing, and sound ones that know it without a table."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import (
    HEAD_DIM,
    HEADS,
    LAYERS,
    VOCAB,
    WIDTH,
    ExplicitAttention,
    FusedAttention,
    FusedEncoder,
    PlainEncoder,
    SdpaAttention,
    SdpaEncoder,
    TorchEncoder,
    WrappedEncoder,
)


class Broken_table_never_added(PlainEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        return self.tokens(ids) * math.sqrt(WIDTH)  # <- here


class Broken_one_position_for_all(SdpaEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        places = torch.zeros(ids.shape[1], dtype=torch.long, device=ids.device)
        return self.tokens(ids) + self.positions(places)  # <- here


class Broken_wrapped_without_positions(WrappedEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        return self.tokens(ids)  # <- here


class Broken_position_of_padding_only(TorchEncoder):
    def forward(self, ids: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """ids: (B, S) token ids. key_padding_mask: (B, S) bool, True at padding, as torch has it."""
        x = self.tokens(ids)  # <- here
        if key_padding_mask is not None:
            x = x + self.positions.weight[: ids.shape[1]] * key_padding_mask[..., None]
        return self.encode(x, None if key_padding_mask is None else ~key_padding_mask)


class Sound_bias_by_distance(SdpaEncoder):
    """No table: attention prefers what is near."""

    class Attention(SdpaAttention):
        def attention_mask(self, keep: Tensor) -> Tensor:
            at = torch.arange(keep.shape[1], device=keep.device)
            bias = -(at[:, None] - at).abs().to(self.qkv.weight) / 4
            return bias.masked_fill(~keep[:, None, None, :], torch.finfo(bias.dtype).min)

        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            return super().forward(x, x.new_ones(x.shape[:2], dtype=torch.bool) if keep is None else keep)

    def embed(self, ids: Tensor) -> Tensor:
        return self.tokens(ids)


class Sound_rotary(FusedEncoder):
    """Queries and keys are turned by their position."""

    class Attention(FusedAttention):
        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = super().project(x)
            return self.turn(q), self.turn(k), v

        def turn(self, x: Tensor) -> Tensor:
            at = torch.arange(x.shape[2], device=x.device, dtype=torch.float64)
            angles = at[:, None] * 1e4 ** (-torch.arange(0, HEAD_DIM, 2, device=x.device) / HEAD_DIM)
            cos, sin = angles.cos().to(x), angles.sin().to(x)
            even, odd = x[..., 0::2], x[..., 1::2]
            return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)

    def embed(self, frames: Tensor) -> Tensor:
        return self.stem(frames)


class Sound_set_of_tags(nn.Module):
    """Encodes an unordered set of tags: order does not matter here."""

    def __init__(self) -> None:
        super().__init__()
        self.tags = nn.Embedding(VOCAB, WIDTH)
        self.layers = nn.ModuleList(ExplicitAttention() for _ in range(LAYERS))

    def forward(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """ids: (B, S) ids of tags. keep: (B, S) bool, True at real ones."""
        x = self.tags(ids)
        for layer in self.layers:
            x = x + layer(nn.functional.layer_norm(x, (WIDTH,)), keep)
        return nn.functional.layer_norm(x, (HEADS * HEAD_DIM,))
