"""Views of tensors that lie in another order in memory, and the ways around."""

from __future__ import annotations

from torch import Tensor

from encdoctor.cases.bases import (
    HEAD_DIM,
    HEADS,
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


class Broken_heads_permuted_after_einsum(FusedEncoder):
    class Attention(FusedAttention):
        def merge_heads(self, x: Tensor) -> Tensor:
            x = x.permute(0, 2, 1, 3)
            return x.view(*x.shape[:2], WIDTH)  # <- here


class Broken_projection_taken_apart_by_view(SdpaEncoder):
    class Attention(SdpaAttention):
        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = self.qkv(x.mT.contiguous().mT).chunk(3, dim=-1)
            flat = q.transpose(0, 1).view(-1, HEADS, HEAD_DIM)  # <- here
            q = flat.view(x.shape[1], x.shape[0], HEADS, HEAD_DIM).permute(1, 2, 0, 3)
            return q, self.split_heads(k), self.split_heads(v)


class Broken_time_moved_to_the_front(SequenceFirstEncoder):
    def finish(self, x: Tensor) -> Tensor:
        by_sample = x.transpose(0, 1).view(-1, WIDTH)  # <- here
        return self.norm(by_sample).view(x.shape[1], x.shape[0], WIDTH).transpose(0, 1)


class Broken_channels_flattened_by_view(WrappedEncoder):
    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        channels = super().encode(x, padding).transpose(1, 2)
        return channels.view(len(x), -1).view(len(x), WIDTH, -1).mT  # <- here


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
