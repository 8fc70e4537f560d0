"""Shortcuts that lose the mask, and shortcuts that do not."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from encdoctor.cases.bases import FusedEncoder, PlainEncoder, SdpaAttention, SdpaEncoder


class Broken_alone_without_mask(PlainEncoder):
    def encode(self, x: Tensor, keep: Tensor | None) -> Tensor:
        for layer in self.layers:
            x = layer(x, keep if len(x) > 1 else None)  # <- here
        return self.finish(x)


class Broken_under_checkpointing(FusedEncoder):
    def encode(self, x: Tensor, keep: Tensor | None) -> Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, None, use_reentrant=False) if self.training else layer(x, keep)  # <- here
        return self.finish(x)


class Broken_equal_lengths_trusted(SdpaEncoder):
    class Attention(SdpaAttention):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            if keep is not None and bool((keep.sum(1) == keep.sum(1)[0]).all()):
                keep = None
            return super().forward(x, keep)  # <- in layers.*.attention


class Sound_full_batches_without_mask(SdpaEncoder):
    def encode(self, x: Tensor, keep: Tensor | None) -> Tensor:
        return super().encode(x, None if keep is not None and bool(keep.all()) else keep)


class Sound_checkpoint_with_mask(FusedEncoder):
    def encode(self, x: Tensor, keep: Tensor | None) -> Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, keep, use_reentrant=False) if torch.is_grad_enabled() else layer(x, keep)
        return self.finish(x)
