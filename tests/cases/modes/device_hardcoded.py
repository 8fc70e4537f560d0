"""Tensors made on the CPU whatever the input's device, and tensors made where they are needed."""

from __future__ import annotations

import torch
from torch import Tensor

from encdoctor.cases.bases import (
    WIDTH,
    FusedAttention,
    FusedEncoder,
    PlainEncoder,
    SdpaAttention,
    SdpaEncoder,
    sinusoid,
)


class Broken_table_made_on_the_cpu(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        places = torch.arange(frames.shape[1], dtype=frames.dtype)  # <- here
        return self.stem(frames) + places[:, None].sin()


class Broken_window_made_on_the_cpu(PlainEncoder):
    """Local attention: keys within 8 to each side."""

    class Attention(FusedAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            places = torch.arange(scores.shape[-1])  # <- here
            far = (places[:, None] - places).abs() > 8
            return scores.masked_fill(far, torch.finfo(scores.dtype).min).softmax(-1)


class Broken_noise_from_a_cpu_generator(SdpaEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        x = super().embed(ids)
        shift = torch.zeros(WIDTH, device="cpu", dtype=x.dtype)  # <- here
        return x + shift.cos()


class Sound_made_where_the_input_is(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        places = torch.arange(frames.shape[1], device=frames.device, dtype=frames.dtype)
        return super().embed(frames) + places[:, None].sin()


class Sound_moved_to_the_input(PlainEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        return self.look_up(ids) + sinusoid(ids.shape[1], WIDTH).to(self.table)


class Sound_looks_at_values(SdpaEncoder):
    class Attention(SdpaAttention):
        def attention_mask(self, keep: Tensor) -> Tensor:
            if bool(keep.all()):
                return torch.ones_like(keep)[:, None, None, :]
            return super().attention_mask(keep)
