"""Writes into what backward needs, and writes into what it does not."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encdoctor.cases.bases import (
    WIDTH,
    ExplicitAttention,
    FusedAttention,
    FusedEncoder,
    PlainEncoder,
    PostNormLayer,
    SdpaEncoder,
    TorchEncoder,
    WrappedEncoder,
)


class Broken_residual_added_in_place(PlainEncoder):
    class Layer(PostNormLayer):
        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            x = self.norm1(x + self.attention(x, keep))
            x += self.feed(x)  # <- here
            return self.norm2(x)


class Broken_weights_normalised_in_place(FusedEncoder):
    class Attention(FusedAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            weights = scores.softmax(-1)
            weights /= weights.sum(-1, keepdim=True)  # <- here
            return weights


class Broken_first_position_overwritten(SdpaEncoder):
    def finish(self, x: Tensor) -> Tensor:
        x = torch.sigmoid(super().finish(x))
        x[:, 0] = x[:, 0] * 2  # <- here
        return x


class Broken_mean_taken_off_in_place(TorchEncoder):
    def finish(self, x: Tensor) -> Tensor:
        x = torch.exp(x - x.amax(-1, keepdim=True))
        x.div_(x.sum(-1, keepdim=True))  # <- here
        return x


class Sound_in_place_where_nothing_was_kept(PlainEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        x = self.look_up(ids)
        x += self.table[: ids.shape[1]]
        return x


class Sound_scores_filled_in_place(FusedEncoder):
    class Attention(ExplicitAttention):
        def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
            return scores.masked_fill_(~keep[:, None, None, :], torch.finfo(scores.dtype).min)


class Sound_rectified_in_place(SdpaEncoder):
    class Layer(PostNormLayer):
        def make_feed(self) -> nn.Module:
            return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=True), nn.Linear(WIDTH, WIDTH))


class Sound_output_written_by_rows(WrappedEncoder):
    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        x = super().encode(x, padding)
        out = torch.zeros_like(x)
        out[:, 0] = F.gelu(x[:, 0])
        out[:, 1:] = x[:, 1:]
        return out
