"""Encoders that raise on an ordinary call, and one that refuses what it says it refuses."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import (
    LONGEST,
    WIDTH,
    ExplicitAttention,
    FusedEncoder,
    PlainEncoder,
    SdpaAttention,
    SdpaEncoder,
    TorchEncoder,
    WrappedEncoder,
)


class Broken_mask_is_required_after_all(PlainEncoder):
    class Attention(ExplicitAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            weights = scores.softmax(-1)
            return weights * keep.any(-1)[:, None, None, None]  # type: ignore[union-attr]  # <- here


class Broken_wrong_width_behind_the_stack(FusedEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.out = nn.Linear(2 * WIDTH, WIDTH)

    def finish(self, x: Tensor) -> Tensor:
        return self.out(super().finish(x))  # <- here


class Broken_attribute_never_set(SdpaEncoder):
    class Attention(SdpaAttention):
        visible: Tensor

        def attention_mask(self, keep: Tensor) -> Tensor:
            return super().attention_mask(keep) & self.visible  # <- here


class Broken_unpacks_too_much(WrappedEncoder):
    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        batch, _, length, width = x.shape  # <- here
        return super().encode(x.reshape(batch, length, width), padding)


class Broken_mask_indexed_by_floats(TorchEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        places = torch.linspace(0, LONGEST - 1, ids.shape[1], device=ids.device)
        return self.tokens(ids) + self.positions(places)  # <- here


class Sound_refuses_what_is_too_long(PlainEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        if ids.shape[1] > LONGEST:
            raise ValueError(f"at most {LONGEST} tokens, not {ids.shape[1]}")
        return super().embed(ids)


class Sound_catches_its_own(SdpaEncoder):
    class Attention(SdpaAttention):
        def attention_mask(self, keep: Tensor) -> Tensor:
            try:
                raise RuntimeError("no kernel for this shape")
            except RuntimeError:
                return super().attention_mask(keep)
