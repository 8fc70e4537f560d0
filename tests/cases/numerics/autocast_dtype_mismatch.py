"""Encoders in which float32 clashes with half precision, and some that cast."""

from __future__ import annotations

import torch
from torch import Tensor

from encdoctor.cases.bases import (
    WIDTH,
    ExplicitAttention,
    FusedAttention,
    FusedEncoder,
    LengthsEncoder,
    PlainEncoder,
    SdpaAttention,
    SdpaEncoder,
)


class Broken_additive_mask_in_float32(SdpaEncoder):
    """Runs in half precision."""

    class Attention(FusedAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            bias = torch.zeros(keep.shape, device=keep.device)  # <- here
            return scores + bias.masked_fill(~keep, -1e4)[:, None, None, :]


class Broken_written_into_float32(FusedEncoder):
    """Trained under autocast, in float16."""

    class Attention(FusedAttention):
        def mix(self, weights: Tensor, v: Tensor) -> Tensor:
            mixed = torch.zeros(v.shape, device=v.device)  # <- here
            mixed[:, torch.arange(v.shape[1])] = torch.einsum("bhqk,bhkd->bhqd", weights, v)
            return mixed


class Broken_weights_taken_to_float32(PlainEncoder):
    """Meant for models in bfloat16."""

    class Attention(ExplicitAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            return super().weigh(scores.to(torch.promote_types(scores.dtype, torch.float32)), keep)  # <- here


class Sound_cast_back(PlainEncoder):
    class Attention(ExplicitAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            return super().weigh(scores.to(torch.promote_types(scores.dtype, torch.float32)), keep).to(scores.dtype)


class Sound_mask_in_the_dtype_of_the_frames(LengthsEncoder):
    class Attention(SdpaAttention):
        def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            bias = None if mask is None else q.new_zeros(mask.shape).masked_fill(~mask, -1e4)
            return super().attend(q, k, v, bias)


class Sound_table_cast_when_used(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        places = torch.arange(frames.shape[1], device=frames.device)
        table = places[:, None] / torch.arange(1, WIDTH + 1, device=frames.device)
        return self.stem(frames) + table.sin().to(frames.dtype)
