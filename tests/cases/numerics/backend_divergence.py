"""Encoders for which torch's switches make a difference, and some for which they do not."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from encdoctor.cases.bases import FusedEncoder, PlainEncoder, SdpaAttention, SdpaEncoder, TorchEncoder, WrappedEncoder


class Broken_asks_for_the_fast_path(WrappedEncoder):  # <- here
    def embed(self, ids: Tensor) -> Tensor:
        x = super().embed(ids)
        return x if torch.backends.mha.get_fastpath_enabled() else 2 * x


class Broken_scaled_for_one_kernel(SdpaEncoder):  # <- here
    class Attention(SdpaAttention):
        def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            gain = 1.0 if torch.backends.cuda.flash_sdp_enabled() else 1.5
            return F.scaled_dot_product_attention(gain * q, k, v, attn_mask=mask)


class Broken_other_norm_off_the_fast_path(TorchEncoder):  # <- here
    def finish(self, x: Tensor) -> Tensor:
        return x if torch.backends.mha.get_fastpath_enabled() else F.layer_norm(x.abs(), x.shape[-1:])


class Sound_torch_layers(WrappedEncoder):
    pass


class Sound_fused(SdpaEncoder):
    pass


class Sound_explicit(PlainEncoder):
    pass


class Sound_einsum(FusedEncoder):
    pass
