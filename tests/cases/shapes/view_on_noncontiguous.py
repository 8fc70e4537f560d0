"""Views of tensors that lie in another order in memory, and the ways around."""

from __future__ import annotations

import torch
from torch import Tensor

from encdoctor.cases.bases import (
    WIDTH,
    ExplicitAttention,
    FusedAttention,
    FusedEncoder,
    PlainEncoder,
    SdpaAttention,
    SdpaEncoder,
    SequenceFirstEncoder,
    WrappedEncoder,
)


class Broken_heads_merged_by_view(PlainEncoder):
    class Attention(ExplicitAttention):
        def merge_heads(self, x: Tensor) -> Tensor:
            return x.transpose(1, 2).view(x.shape[0], -1, WIDTH)  # <- here


class Broken_permuted_after_einsum(FusedEncoder):
    class Attention(FusedAttention):
        def mix(self, weights: Tensor, v: Tensor) -> Tensor:
            return torch.einsum("bhqk,bhkd->bqhd", weights, v).contiguous().transpose(1, 2)

        def merge_heads(self, x: Tensor) -> Tensor:
            x = x.permute(2, 0, 1, 3)
            return x.view(*x.shape[:2], WIDTH).transpose(0, 1)  # <- here


class Broken_chunk_taken_apart_by_view(SdpaEncoder):
    class Attention(SdpaAttention):
        def merge_heads(self, x: Tensor) -> Tensor:
            batch, heads, length, width = x.shape
            return x.mT.view(batch, heads * width, length).mT.view(batch, length, -1)  # <- here


class Broken_time_moved_to_the_front(SequenceFirstEncoder):
    def finish(self, x: Tensor) -> Tensor:
        by_sample = x.transpose(0, 1).view(-1, WIDTH)  # <- here
        return self.norm(by_sample).view(x.shape[1], x.shape[0], WIDTH).transpose(0, 1)


class Broken_pooled_by_view(WrappedEncoder):
    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        hidden = super().encode(x, padding)
        return hidden.transpose(1, 2).view(-1, x.shape[1]).view_as(hidden.mT).mT  # <- here


class Broken_only_for_strided_input(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        flat = frames.view(-1, WIDTH)  # <- here
        return self.stem(flat).view_as(frames) + self.positions[: frames.shape[1]]


class Sound_reshape(PlainEncoder):
    class Attention(ExplicitAttention):
        def merge_heads(self, x: Tensor) -> Tensor:
            return x.transpose(1, 2).reshape(x.shape[0], -1, WIDTH)


class Sound_contiguous_first(SdpaEncoder):
    class Attention(SdpaAttention):
        def merge_heads(self, x: Tensor) -> Tensor:
            return x.transpose(1, 2).contiguous().view(x.shape[0], -1, WIDTH)


class Sound_view_where_memory_allows(FusedEncoder):
    class Attention(FusedAttention):
        def split_heads(self, x: Tensor) -> Tensor:
            return x.view(*x.shape[:2], 4, -1).transpose(1, 2)
