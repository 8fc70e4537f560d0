"""Local attention, narrower than declared or as wide."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from encdoctor.cases.bases import (
    ExplicitAttention,
    FusedAttention,
    FusedEncoder,
    PlainEncoder,
    SdpaAttention,
    SdpaEncoder,
)


def distance(like: Tensor, length: int) -> Tensor:
    places = torch.arange(length, device=like.device)
    return (places[:, None] - places).abs()


class Broken_halved_twice(PlainEncoder):
    def __init__(self) -> None:
        super().__init__()
        self.attention_window = 8

    class Attention(ExplicitAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            far = distance(scores, scores.shape[-1]) > 8 // 4
            return scores.masked_fill(far, torch.finfo(scores.dtype).min).softmax(-1)  # <- here


class Broken_one_on_each_side(SdpaEncoder):
    def __init__(self, sliding_window: int = 7) -> None:
        super().__init__()
        self.sliding_window = sliding_window

    class Attention(SdpaAttention):
        def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            far = torch.zeros(q.shape[-2], q.shape[-2], device=q.device).masked_fill(
                distance(q, q.shape[-2]) > 1, -torch.inf
            )
            bias = far.to(q.dtype)
            if mask is not None:
                bias = bias.masked_fill(~mask, torch.finfo(q.dtype).min)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)  # <- here


class Broken_strictly_inside_a_quarter(FusedEncoder):
    def __init__(self, local_attention: int = 9) -> None:
        super().__init__()
        self.local_attention = local_attention

    class Attention(FusedAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            near = distance(scores, scores.shape[-1]) < 3
            return torch.where(near, scores, torch.finfo(scores.dtype).min).softmax(-1)  # <- here


class Sound_half_on_each_side(FusedEncoder):
    def __init__(self, attention_window: int = 8) -> None:
        super().__init__()
        self.attention_window = attention_window

    class Attention(FusedAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            far = distance(scores, scores.shape[-1]) > 4
            return scores.masked_fill(far, torch.finfo(scores.dtype).min).softmax(-1)


class Sound_no_width_declared(PlainEncoder):
    """Local attention: each token only to its neighbours."""

    class Attention(ExplicitAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            far = distance(scores, scores.shape[-1]) > 2
            return scores.masked_fill(far, torch.finfo(scores.dtype).min).softmax(-1)
