"""Encoders that give fewer positions in eval, and sound ones that put them back."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from encdoctor.cases.bases import FusedEncoder, PlainEncoder, SdpaEncoder


class Broken_columns_cut_in_eval(FusedEncoder):
    def forward(self, frames: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        """frames: (B, S, 32) features. pad_mask: (B, S) bool, True at padding."""
        if pad_mask is not None and not self.training:
            longest = int((~pad_mask).sum(1).max())
            frames, pad_mask = frames[:, :longest], pad_mask[:, :longest]  # <- here
        return super().forward(frames, pad_mask)


class Broken_output_cut_in_eval(PlainEncoder):
    def forward(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """ids: (B, S) token ids. keep: (B, S) bool, True at real tokens."""
        x = self.encode(self.embed(ids), keep)
        if self.training or keep is None:
            return x
        return x[:, : int(keep.sum(1).max())]  # <- here


class Broken_padding_dropped_by_index(SdpaEncoder):
    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """input_ids: (B, S). attention_mask: (B, S) int, 1 for tokens and 0 for padding."""
        if attention_mask is not None and not self.training:
            used = attention_mask.any(0)
            input_ids, attention_mask = input_ids[:, used], attention_mask[:, used]  # <- here
        return super().forward(input_ids, attention_mask)


class Sound_cut_and_padded_back(FusedEncoder):
    def forward(self, frames: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        """frames: (B, S, 32) features. pad_mask: (B, S) bool, True at padding."""
        if pad_mask is None or self.training:
            return super().forward(frames, pad_mask)
        longest = int((~pad_mask).sum(1).max())
        x = super().forward(frames[:, :longest], pad_mask[:, :longest])
        return F.pad(x, (0, 0, 0, frames.shape[1] - longest))


class Sound_never_cut(SdpaEncoder):
    pass
