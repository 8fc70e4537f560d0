"""Backward that is not finite though forward is, and the same formulas written safely."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import (
    ExplicitAttention,
    FusedAttention,
    FusedEncoder,
    LengthsEncoder,
    PreNormLayer,
    SequenceFirstEncoder,
)


class OutsideNorm(nn.Module):
    """A norm whose eps stands outside the root."""

    def forward(self, x: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True)
        return x / (x.pow(2).mean(-1, keepdim=True).sqrt() + 1e-6)  # the derivative of √0 is infinite


class Broken_eps_outside_the_root(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        frames = frames / (frames.pow(2).mean(-1, keepdim=True).sqrt() + 1e-6)  # <- here
        return super().embed(frames)


class Broken_norm_of_zeros(LengthsEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        size = (frames * frames).sum(-1, keepdim=True).sqrt()  # <- here
        return super().embed(frames / (1 + size))


class Broken_both_branches(SequenceFirstEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        squeezed = torch.where(frames > 0, torch.sqrt(frames.abs()), torch.zeros_like(frames))  # <- here
        return super().embed(squeezed)


class Broken_standardised(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        spread = frames.var(-1, keepdim=True) ** 0.5  # <- here
        return super().embed((frames - frames.mean(-1, keepdim=True)) / (spread + 1e-5))


class Sound_eps_inside(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        return super().embed(frames / (frames.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt())


class Sound_zeros_never_reach_the_norm(FusedEncoder):
    class Layer(PreNormLayer):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.norm1 = OutsideNorm()  # type: ignore[assignment]


class Sound_minus_infinity(FusedEncoder):
    class Attention(FusedAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            scores = scores.masked_fill(~keep[:, None, None, :], -torch.inf)
            return torch.where(keep.any(-1)[:, None, None, None], scores, 0.0)


class Sound_both_branches_guarded(LengthsEncoder):
    class Attention(ExplicitAttention):
        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = super().project(x)
            positive = v > 0
            root = torch.where(positive, torch.where(positive, v, 1.0).sqrt(), v)
            return q, k, root


