"""Rates that nobody applies, and rates that somebody does."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encdoctor.cases.bases import FusedEncoder, PlainEncoder, SdpaAttention, SdpaEncoder, TorchEncoder


class Broken_module_never_called(PlainEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.drop = nn.Dropout(0.1)  # <- here


class Broken_argument_never_read(FusedEncoder):  # <- here
    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()


class Broken_mode_turned_around(TorchEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.drop = nn.Dropout(0.2)  # <- here

    def embed(self, ids: Tensor) -> Tensor:
        return F.dropout(super().embed(ids), self.drop.p, training=False)


class Sound_applied_in_attention(SdpaEncoder):
    class Attention(SdpaAttention):
        rate = 0.1

        def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            rate = self.rate if self.training else 0.0
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=rate)


class Sound_rate_of_zero(PlainEncoder):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)


class Sound_whole_tokens_dropped(FusedEncoder):
    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        self.dropout = dropout

    def embed(self, frames: Tensor) -> Tensor:
        x = super().embed(frames)
        if self.training:
            kept = torch.empty(*x.shape[:2], 1, device=x.device, dtype=x.dtype).bernoulli_(1 - self.dropout)
            x = x * kept / (1 - self.dropout)
        return x
