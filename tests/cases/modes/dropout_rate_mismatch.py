"""Dropout told what to keep, and rates that are merely high."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from encdoctor.cases.bases import FusedEncoder, PlainEncoder, SdpaAttention, SdpaEncoder, TorchEncoder


class Broken_share_to_keep(PlainEncoder):
    rate = 0.1

    def look_up(self, ids: Tensor) -> Tensor:
        x = super().look_up(ids)
        return F.dropout(x, 1 - self.rate, self.training)  # <- here


class Broken_module_given_the_share_to_keep(TorchEncoder):
    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        self.dropout = dropout

    def embed(self, ids: Tensor) -> Tensor:
        drop = nn.functional.dropout
        return drop(super().embed(ids), p=1.0 - self.dropout, training=self.training)  # <- here


class Broken_fused_attention_keeps_little(SdpaEncoder):
    class Attention(SdpaAttention):
        def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            rate = 0.9 if self.training else 0.0
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=rate)  # <- here


class Sound_one_tenth(PlainEncoder):
    def finish(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.1, self.training)


class Sound_high_rate_that_is_given(FusedEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.drop = nn.Dropout(0.6)

    def embed(self, frames: Tensor) -> Tensor:
        return self.drop(super().embed(frames))
