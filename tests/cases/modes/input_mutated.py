"""Encoders that write into what they are handed, and some that only seem to."""

from __future__ import annotations

import torch
from torch import Tensor

from encdoctor.cases.bases import FusedEncoder, LengthsEncoder, PlainEncoder, TorchEncoder


class Broken_padding_zeroed_in_place(FusedEncoder):
    def forward(self, frames: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        """frames: (B, S, 32) features. pad_mask: (B, S) bool, True at padding."""
        if pad_mask is not None:
            frames.masked_fill_(pad_mask[..., None], 0.0)  # <- here
        return super().forward(frames, pad_mask)


class Broken_scaled_in_place(LengthsEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        frames *= 0.5  # <- here
        return super().embed(frames)


class Broken_first_token_overwritten(TorchEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        ids[:, 0] = 1  # <- here
        return super().embed(ids)


class Broken_mask_changed(PlainEncoder):
    def forward(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """ids: (B, S) token ids. keep: (B, S) bool, True at real tokens."""
        seen = None
        if keep is not None:
            seen = keep.clone()
            keep.logical_not_()  # <- here
        return self.encode(self.embed(ids), seen)


class Sound_copy_changed(LengthsEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        frames = frames.clone()
        frames *= 0.5
        return super().embed(frames)


class Sound_own_tensor_changed(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        x = super().embed(frames)
        x += torch.tanh(x)
        return x
