"""Encoders that got a triangle by mistake, and models that look in one direction on purpose."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encdoctor.cases.bases import (
    WIDTH,
    ExplicitAttention,
    FusedAttention,
    FusedEncoder,
    PlainEncoder,
    SdpaAttention,
    SdpaEncoder,
    Stack,
    WrappedEncoder,
)


def later(like: Tensor, length: int) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool, device=like.device).triu(1)


class Broken_triangle_added(PlainEncoder):
    class Attention(ExplicitAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            hidden = later(scores, scores.shape[-1])
            return scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1)  # <- here


class Broken_lower_half_kept(FusedEncoder):
    class Attention(FusedAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            lower = torch.ones(scores.shape[-2:], device=scores.device).tril() == 1
            scores = torch.where(lower, scores, torch.finfo(scores.dtype).min)  # <- here
            return scores.softmax(-1)


class Broken_flag_of_the_kernel(SdpaEncoder):
    class Attention(SdpaAttention):
        def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            if mask is None:
                return F.scaled_dot_product_attention(q, k, v, is_causal=True)  # <- here
            return F.scaled_dot_product_attention(q, k, v, mask & ~later(q, q.shape[-2]))


class Broken_square_mask_from_a_recipe(WrappedEncoder):
    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        square = later(x, x.shape[1])
        return self.encoder(x, mask=square, src_key_padding_mask=padding)  # <- here


class Sound_asked_for_by_an_argument(PlainEncoder):
    def __init__(self, causal: bool = True) -> None:
        super().__init__()
        self.causal = causal

    class Attention(Broken_triangle_added.Attention):
        pass


class Sound_said_in_the_docstring(Broken_lower_half_kept):
    """A causal encoder for streams."""


class Sound_recurrent(Stack):
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.GRU(WIDTH, WIDTH, batch_first=True)

        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            return self.cells(x)[0]

    def forward(self, frames: Tensor) -> Tensor:
        """frames: (B, S, 32) features."""
        return self.encode(frames, None)


class Sound_looks_two_steps_ahead(PlainEncoder):
    class Attention(ExplicitAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(3)
            return scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1)
