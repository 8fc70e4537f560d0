"""Rotary encoders that turn the wrong things, and sound ones in both layouts."""

from __future__ import annotations

import torch
from torch import Tensor

from encdoctor.cases.bases import HEAD_DIM, ExplicitAttention, FusedAttention, FusedEncoder, PlainEncoder, SdpaAttention

RATES = 1e4 ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)


def angles_for(x: Tensor) -> Tensor:
    """(S, D/2) for (B, H, S, D)."""
    return torch.arange(x.shape[-2], device=x.device)[:, None] * RATES.to(x)


def by_halves(x: Tensor) -> Tensor:
    one, other = x.chunk(2, -1)
    return torch.cat((-other, one), -1)


def turn_halves(x: Tensor) -> Tensor:
    angles = torch.cat((angles_for(x), angles_for(x)), -1)
    return x * angles.cos() + by_halves(x) * angles.sin()


class RotaryEncoder(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        return self.stem(frames)

    def make_parts(self) -> None:
        super().make_parts()
        del self.positions


class Broken_angles_in_pairs_features_in_halves(RotaryEncoder):
    class Attention(FusedAttention):
        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = super().project(x)
            return self.turn(q), self.turn(k), v

        def turn(self, x: Tensor) -> Tensor:
            angles = angles_for(x).repeat_interleave(2, -1)
            one, other = x.chunk(2, -1)
            return x * angles.cos() + torch.cat((-other, one), -1) * angles.sin()  # <- here


class Broken_only_keys_turned(RotaryEncoder):
    class Attention(SdpaAttention):
        def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            k = turn_halves(k)
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # <- here


class Broken_keys_turned_backwards(RotaryEncoder):
    class Attention(ExplicitAttention):
        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = super().project(x)
            angles = torch.cat((angles_for(k), angles_for(k)), -1)
            k = k * angles.cos() - torch.cat((-k.chunk(2, -1)[1], k.chunk(2, -1)[0]), -1) * angles.sin()  # <- here
            q = q * angles.cos() + torch.cat((-q.chunk(2, -1)[1], q.chunk(2, -1)[0]), -1) * angles.sin()
            return q, k, v


class Broken_values_turned_too(RotaryEncoder):
    class Attention(FusedAttention):
        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = super().project(x)
            return self.turn(q), self.turn(k), self.turn(v)

        def turn(self, x: Tensor) -> Tensor:
            angles = torch.cat((angles_for(x), angles_for(x)), -1)
            return x * angles.cos() + by_halves(x) * angles.sin()  # <- here


class Sound_halves(RotaryEncoder):
    class Attention(SdpaAttention):
        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = super().project(x)
            return turn_halves(q), turn_halves(k), v


class Sound_complex_pairs_over_half_the_features(RotaryEncoder):
    class Attention(FusedAttention):
        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v = super().project(x)
            return self.turn(q), self.turn(k), v

        def turn(self, x: Tensor) -> Tensor:
            turned, plain = x.chunk(2, -1)
            angles = angles_for(x)[:, : turned.shape[-1] // 2]
            as_complex = torch.view_as_complex(turned.unflatten(-1, (-1, 2)).contiguous())
            mixed = as_complex * torch.polar(torch.ones_like(angles), angles)
            return torch.cat((torch.view_as_real(mixed).flatten(-2), plain), -1)


class Sound_absolute_table(PlainEncoder):
    pass
