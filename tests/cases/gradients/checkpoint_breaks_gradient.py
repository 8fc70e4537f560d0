"""Recomputation that loses gradients, and recomputation that does not."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils import checkpoint as recompute
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from encdoctor.cases.bases import (
    WIDTH,
    FusedEncoder,
    LengthsEncoder,
    PlainEncoder,
    SdpaEncoder,
    WrappedEncoder,
)


class Broken_stem_recomputed(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        if self.training:
            return checkpoint(super().embed, frames, use_reentrant=True)  # <- here
        return super().embed(frames)


class Broken_embedding_recomputed(SdpaEncoder):
    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """input_ids: (B, S). attention_mask: (B, S) int, 1 for tokens and 0 for padding."""
        keep = None if attention_mask is None else attention_mask.bool()
        if not self.training:
            return self.encode(self.embed(input_ids), keep)
        x = recompute.checkpoint(self.embed, input_ids, use_reentrant=True)  # <- here
        return self.encode(x, keep)


class Broken_front_in_segments(LengthsEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.front = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))

    def embed(self, frames: Tensor) -> Tensor:
        if self.training:
            frames = checkpoint_sequential(self.front, 2, frames, use_reentrant=True)  # <- here
        else:
            frames = self.front(frames)
        return super().embed(frames)


class Sound_other_form(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        if self.training:
            return checkpoint(super().embed, frames, use_reentrant=False)
        return super().embed(frames)


class Sound_input_wants_a_gradient(PlainEncoder):
    def encode(self, x: Tensor, keep: Tensor | None) -> Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, keep, use_reentrant=True) if self.training else layer(x, keep)
        return x


class Sound_made_to_want_one(WrappedEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        x = super().embed(ids)
        return x if x.requires_grad or not torch.is_grad_enabled() else x.requires_grad_()
