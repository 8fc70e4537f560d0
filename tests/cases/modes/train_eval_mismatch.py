"""Encoders that compute something else in train mode, and some that differ in dropout only."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encdoctor.cases.bases import FusedEncoder, PlainEncoder, PreNormLayer, SdpaEncoder, WrappedEncoder


class Broken_mask_without_rescaling(SdpaEncoder):
    class Layer(PreNormLayer):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            x = x + self.attention(self.norm1(x), keep)
            y = self.feed(self.norm2(x))
            if self.training:  # <- here
                y = y * torch.full_like(y, 0.7).bernoulli()
            return x + y


class Broken_scaled_in_training(PlainEncoder):
    def look_up(self, ids: Tensor) -> Tensor:
        return super().look_up(ids) if self.training else self.tokens(ids)  # <- here


class Broken_norm_in_eval_only(FusedEncoder):
    def finish(self, x: Tensor) -> Tensor:
        return x if self.training else self.norm(x)  # <- here


class Sound_dropout_everywhere(PlainEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.drop = nn.Dropout(0.3)

    def look_up(self, ids: Tensor) -> Tensor:
        return self.drop(super().look_up(ids))

    def finish(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.2, self.training)


class Sound_layers_of_torch(WrappedEncoder):
    pass


class Sound_spans_hidden_in_training(FusedEncoder):
    """Frames are hidden at random while training, as SpecAugment does."""

    def embed(self, frames: Tensor) -> Tensor:
        if self.training:
            frames = frames * (torch.rand(frames.shape[:2], device=frames.device) > 0.1)[..., None]
        return super().embed(frames)
