"""Masks of another sample, or off by a key; and some that are laid out with care."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encdoctor.cases.bases import (
    HEAD_DIM,
    HEADS,
    WIDTH,
    ExplicitAttention,
    FusedAttention,
    LengthsEncoder,
    PlainEncoder,
    SequenceFirstEncoder,
    TorchAttention,
    TorchEncoder,
    WrappedEncoder,
)


class FoldedAttention(ExplicitAttention):
    """Heads are folded into the batch, heads slower: (H·B, S, D/H)."""

    def split_heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (HEADS, HEAD_DIM)).permute(2, 0, 1, 3).flatten(0, 1)

    def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
        return scores.masked_fill(~keep.repeat(HEADS, 1)[:, None], torch.finfo(scores.dtype).min)

    def merge_heads(self, x: Tensor) -> Tensor:
        return x.unflatten(0, (HEADS, -1)).permute(1, 2, 0, 3).flatten(2)


class Broken_folded_the_other_way(PlainEncoder):
    class Attention(FoldedAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            mask = keep.repeat_interleave(HEADS, 0)[:, None]
            return scores.masked_fill(~mask, torch.finfo(scores.dtype).min)  # <- here


class Broken_tiled_for_torch(TorchEncoder):
    class Attention(TorchAttention):
        def attend(self, x: Tensor, padding: Tensor | None) -> Tensor:
            square = None if padding is None else padding[:, None].expand(-1, x.shape[1], -1).repeat(HEADS, 1, 1)
            return self.heads(x, x, x, attn_mask=square, need_weights=False)[0]  # <- here


class Broken_samples_rolled(SequenceFirstEncoder):
    def forward(self, frames: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        """frames: (S, B, 32) features, time first. pad_mask: (B, S) bool, True at padding."""
        keep = None if pad_mask is None else ~pad_mask.roll(1, dims=0)  # <- here
        return self.encode(self.embed(frames), keep)


class Broken_summary_in_front(WrappedEncoder):
    def __init__(self) -> None:
        super().__init__()
        self.summary = nn.Parameter(torch.randn(WIDTH))

    def forward(self, ids: Tensor) -> Tensor:
        """ids: (B, S) token ids, padded with 0."""
        x = torch.cat([self.summary.expand(len(ids), 1, -1), self.embed(ids)], 1)
        padding = F.pad(ids == 0, (0, 1))  # <- here
        return self.encode(x, padding)[:, 0]


class Broken_counts_one_frame_too_many(LengthsEncoder):
    def padding(self, frames: Tensor, lengths: Tensor) -> Tensor:
        return torch.arange(frames.shape[1], device=frames.device) > lengths[:, None]  # <- here


class Sound_folded_heads_first(PlainEncoder):
    Attention = FoldedAttention


class Sound_summary_at_the_end(WrappedEncoder):
    def __init__(self) -> None:
        super().__init__()
        self.summary = nn.Parameter(torch.randn(WIDTH))

    def forward(self, ids: Tensor) -> Tensor:
        """ids: (B, S) token ids, padded with 0."""
        x = torch.cat([self.embed(ids), self.summary.expand(len(ids), 1, -1)], 1)
        return self.encode(x, F.pad(ids == 0, (0, 1)))[:, -1]


class Sound_frames_of_whole_windows(LengthsEncoder):
    class Attention(FusedAttention):
        """With a mask of its own."""

    def make_parts(self) -> None:
        super().make_parts()
        self.shorten = nn.Conv1d(WIDTH, WIDTH, 3, 2)

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """frames: (B, S, 32) features. lengths: (B,) int64, the number of real frames."""
        x = self.shorten(self.embed(frames).mT).mT
        return self.encode(x, ~self.padding(x, (lengths - 3) // 2 + 1))
