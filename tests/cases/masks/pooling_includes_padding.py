"""Sentence vectors over everything, and over the sentence."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import WIDTH, FusedEncoder, LengthsEncoder, PlainEncoder, SdpaEncoder, WrappedEncoder


class Broken_mean_over_all(PlainEncoder):
    def finish(self, x: Tensor) -> Tensor:
        return x.mean(1)  # <- here


class Broken_maximum_over_all(SdpaEncoder):
    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """input_ids: (B, S). attention_mask: (B, S) int, 1 for tokens and 0 for padding."""
        hidden = super().forward(input_ids, attention_mask)
        return hidden, hidden.amax(1)  # <- here


class Broken_zeros_counted(LengthsEncoder):
    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """frames: (B, S, 32) features. lengths: (B,) int64, the number of real frames."""
        padding = self.padding(frames, lengths)
        hidden = self.encode(self.embed(frames), ~padding)
        return hidden.masked_fill(padding[..., None], 0.0).mean(1)  # <- here


class Broken_weighted_by_a_score(WrappedEncoder):
    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(WIDTH, 1)

    def forward(self, ids: Tensor) -> Tensor:
        """ids: (B, S) token ids, padded with 0."""
        hidden = super().forward(ids)
        weights = self.score(hidden).softmax(1)
        return (weights * hidden).sum(1)  # <- here


class Sound_mean_over_real(FusedEncoder):
    def forward(self, frames: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        """frames: (B, S, 32) features. pad_mask: (B, S) bool, True at padding."""
        hidden = super().forward(frames, pad_mask)
        keep = torch.ones(hidden.shape[:2], dtype=torch.bool, device=hidden.device) if pad_mask is None else ~pad_mask
        return (hidden * keep[..., None]).sum(1) / keep.sum(1, keepdim=True).clamp(min=1)


class Sound_first_token(SdpaEncoder):
    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """input_ids: (B, S). attention_mask: (B, S) int, 1 for tokens and 0 for padding."""
        hidden = super().forward(input_ids, attention_mask)
        return hidden, hidden[:, 0].tanh()
