"""Encoders that glue the heads of different tokens together, and sound ones that merge another way."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import (
    HEADS,
    WIDTH,
    ExplicitAttention,
    FusedAttention,
    FusedEncoder,
    PlainEncoder,
    SdpaAttention,
    SdpaEncoder,
)


class Broken_reshape_without_transpose(PlainEncoder):
    class Attention(ExplicitAttention):
        def merge_heads(self, x: Tensor) -> Tensor:
            return x.reshape(x.shape[0], -1, WIDTH)  # <- here


class Broken_view_after_einsum(FusedEncoder):
    class Attention(FusedAttention):
        def merge_heads(self, x: Tensor) -> Tensor:
            batch, _, length, _ = x.shape
            return x.contiguous().view(batch, length, WIDTH)  # <- here


class Broken_wrong_axes_transposed(SdpaEncoder):
    class Attention(SdpaAttention):
        def merge_heads(self, x: Tensor) -> Tensor:
            mixed = x.transpose(2, 3)
            return mixed.reshape(x.shape[0], x.shape[2], WIDTH)  # <- here


class HeadwiseOutAttention(FusedAttention):
    """Every head has its own slice of the output projection; nothing is merged by shape."""

    def merge_heads(self, x: Tensor) -> Tensor:
        return torch.cat([x[:, head] for head in range(HEADS)], dim=-1)


class Sound_heads_concatenated(FusedEncoder):
    Attention = HeadwiseOutAttention


class SequenceFirstMergeAttention(SdpaAttention):
    """Merged with the sequence in front, and moved back after the projection."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        q, k, v = self.project(x)
        mixed = self.attend(q, k, v, None if keep is None else self.attention_mask(keep))
        return self.out(mixed.permute(2, 0, 1, 3).flatten(2)).transpose(0, 1)


class Sound_merged_sequence_first(SdpaEncoder):
    Attention = SequenceFirstMergeAttention
