"""Arithmetic that leaves float16's range, and the same arithmetic done with care."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encdoctor.cases.bases import (
    WIDTH,
    ExplicitAttention,
    FusedEncoder,
    LengthsEncoder,
    PlainEncoder,
    PostNormLayer,
    SequenceFirstEncoder,
)


class CosineAttention(ExplicitAttention):
    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * 40.0


class Broken_squares_of_raw_samples(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        power = (frames * 2**10).square()  # <- here
        return super().embed(power / (power.sum(-1, keepdim=True) + 1))


class Broken_eps_rounded_to_zero(LengthsEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        volts = frames * 1e-5
        power = volts.pow(2).mean(-1, keepdim=True)
        return super().embed(volts / torch.sqrt(power + 1e-12))  # <- here


class Broken_softplus_by_hand(SequenceFirstEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        return super().embed(torch.log1p((16 * frames).exp()))  # <- here


class Sound_largest_score_subtracted(PlainEncoder):
    class Attention(CosineAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            odds = (scores - scores.amax(-1, keepdim=True)).exp()
            return odds / odds.sum(-1, keepdim=True)


class Sound_squares_in_float32(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        power = (frames * 2**10).float().square()
        return super().embed((power / (power.sum(-1, keepdim=True) + 1)).to(frames.dtype))


class Sound_norm_of_torch(FusedEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.input_norm = nn.LayerNorm(WIDTH)

    def embed(self, frames: Tensor) -> Tensor:
        return super().embed(self.input_norm(frames * 2**10))


class HandNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.pow(2).mean(-1, keepdim=True)
        return self.weight * centred * torch.rsqrt(variance + 1e-5) + self.bias


class Sound_hand_written_norm(PlainEncoder):
    class Layer(PostNormLayer):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.norm1, self.norm2 = HandNorm(), HandNorm()  # type: ignore[assignment]
