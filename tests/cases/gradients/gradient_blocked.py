"""Cuts on the way of the gradient, and cuts that are meant."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encdoctor.cases.bases import (
    WIDTH,
    ExplicitAttention,
    FusedEncoder,
    PlainEncoder,
    SdpaAttention,
    SdpaEncoder,
    TorchAttention,
    TorchEncoder,
    WrappedEncoder,
)


class Broken_weights_detached(PlainEncoder):
    class Attention(ExplicitAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            return scores.softmax(-1).detach()  # <- here


class Broken_data_read(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        return super().embed(frames).data  # <- here


class Broken_embedded_without_grad(SdpaEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        with torch.no_grad():  # <- here
            return super().embed(ids)


class Broken_through_numpy(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        stacked = super().embed(frames).detach().numpy()  # <- here
        return torch.from_numpy(stacked.clip(-3, 3))


class Broken_rounded(TorchEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        return torch.round(super().embed(ids) * 16) / 16  # <- here


class Broken_detached_before_torch(WrappedEncoder):
    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        return super().encode(x.detach(), padding)  # <- here


class Broken_hardest_choice(PlainEncoder):
    class Attention(ExplicitAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            best = scores.argmax(-1)  # <- here
            return F.one_hot(best, scores.shape[-1]).to(scores.dtype)


class Sound_frozen_on_purpose(SdpaEncoder):
    """Its token and position vectors are frozen."""

    def make_parts(self) -> None:
        super().make_parts()
        self.tokens.requires_grad_(False)
        self.positions.requires_grad_(False)


class Sound_pooler_not_asked_for(PlainEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.pooler = nn.Linear(WIDTH, WIDTH)

    def pool(self, x: Tensor) -> Tensor:
        return torch.tanh(self.pooler(x[:, 0]))


class Sound_straight_through(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        x = super().embed(frames)
        return x + (torch.round(x * 16) / 16 - x).detach()


class Sound_statistic_detached(PlainEncoder):
    class Attention(ExplicitAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            return (scores - scores.amax(-1, keepdim=True).detach()).softmax(-1)


class Sound_mask_made_without_grad(SdpaEncoder):
    class Attention(SdpaAttention):
        def attention_mask(self, keep: Tensor) -> Tensor:
            with torch.no_grad():
                return super().attention_mask(keep)


class Sound_inner_value_logged(TorchEncoder):
    class Attention(TorchAttention):
        def attend(self, x: Tensor, padding: Tensor | None) -> Tensor:
            mixed = super().attend(x, padding)
            self.last = mixed.detach()
            return mixed
