"""Masks that blank query rows, and masks that rightly blank rows as well as columns."""

from __future__ import annotations

import torch
from torch import Tensor

from encdoctor.cases.bases import (
    HEADS,
    ExplicitAttention,
    FusedAttention,
    FusedEncoder,
    PlainEncoder,
    SdpaAttention,
    SdpaEncoder,
    TorchAttention,
    TorchEncoder,
)


class Broken_sequence_on_the_row_axis(PlainEncoder):
    class Attention(ExplicitAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores.masked_fill(~keep[:, None, :, None], torch.finfo(scores.dtype).min)  # <- here


class Broken_scores_laid_out_keys_first(FusedEncoder):
    class Attention(FusedAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            hidden = ~keep[:, None, None, :].expand_as(scores)
            return scores.masked_fill(hidden.transpose(-2, -1), torch.finfo(scores.dtype).min)  # <- here


class Broken_rows_for_the_fused_kernel(SdpaEncoder):
    class Attention(SdpaAttention):
        def attention_mask(self, keep: Tensor) -> Tensor:
            return keep.unsqueeze(1).unsqueeze(-1)  # <- in layers.*.attention


class Broken_rows_for_torch(TorchEncoder):
    class Attention(TorchAttention):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            mask = None
            if keep is not None:
                rows = (~keep)[:, :, None].expand(-1, -1, x.shape[1])
                mask = rows.repeat_interleave(HEADS, dim=0)
            return self.heads(x, x, x, attn_mask=mask, need_weights=False)[0]  # <- here


class Sound_rows_and_columns(PlainEncoder):
    class Attention(ExplicitAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            pairs = keep[:, None, :, None] & keep[:, None, None, :]
            return scores.masked_fill(~pairs, torch.finfo(scores.dtype).min)


class Sound_rows_blanked_afterwards(SdpaEncoder):
    class Attention(SdpaAttention):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            mixed = super().forward(x, keep)
            return mixed if keep is None else mixed * keep[..., None]


class Sound_keys_first_throughout(FusedEncoder):
    class Attention(FusedAttention):
        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            return super().scores(q, k).transpose(-2, -1)

        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores.masked_fill(~keep[:, None, :, None], torch.finfo(scores.dtype).min)

        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            return scores.softmax(-2).transpose(-2, -1)
