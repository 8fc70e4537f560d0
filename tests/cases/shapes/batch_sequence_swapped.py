"""Encoders that attend over the batch, and sound ones with the sequence in front."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encdoctor.cases.bases import (
    HEADS,
    LAYERS,
    VOCAB,
    WIDTH,
    SdpaAttention,
    SdpaEncoder,
    SequenceFirstEncoder,
    TorchAttention,
    TorchEncoder,
)


class Broken_flag_forgotten(TorchEncoder):
    class Attention(TorchAttention):
        def __init__(self) -> None:
            nn.Module.__init__(self)
            self.heads = nn.MultiheadAttention(WIDTH, HEADS)  # <- here

    def forward(self, ids: Tensor) -> Tensor:
        """ids: (B, S) token ids, all of one length."""
        return self.encode(self.embed(ids), None)


class Broken_layer_with_default_order(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, WIDTH)
        self.places = nn.Parameter(0.1 * torch.randn(8, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)  # <- here

    def forward(self, cells: Tensor) -> Tensor:
        """cells: (batch, 8) ids of a row's cells. Returns (batch, 32)."""
        return self.encoder(self.tokens(cells) + self.places).mean(1)


class Broken_heads_over_the_batch(SdpaEncoder):
    class Attention(SdpaAttention):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            q, k, v = (part.unflatten(-1, (HEADS, -1)).permute(1, 2, 0, 3) for part in self.qkv(x).chunk(3, dim=-1))
            mixed = F.scaled_dot_product_attention(q, k, v)  # <- here
            return self.out(mixed.permute(2, 0, 1, 3).flatten(2))

    def forward(self, ids: Tensor) -> Tensor:
        """ids: (B, S) token ids, all of one length."""
        return self.encode(self.embed(ids), None)


class Sound_sequence_in_front(SequenceFirstEncoder):
    pass


class Sound_transposed_at_the_border(SequenceFirstEncoder):
    def forward(self, frames: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        """frames: (B, S, 32) features. pad_mask: (B, S) bool, True at padding."""
        return super().forward(frames.transpose(0, 1), pad_mask).transpose(0, 1)
