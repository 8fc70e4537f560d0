"""Encoders whose samples influence each other in eval mode, and sound ones."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import (
    WIDTH,
    FusedEncoder,
    SdpaEncoder,
    TorchEncoder,
)


class Broken_statistics_over_batch_and_time(FusedEncoder):
    def finish(self, x: Tensor) -> Tensor:
        mean = x.mean((0, 1), keepdim=True)  # <- here
        return (x - mean) / x.std((0, 1), keepdim=True)


class Broken_softmax_over_the_batch(SdpaEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.gate = nn.Linear(WIDTH, WIDTH)

    def finish(self, x: Tensor) -> Tensor:
        return self.norm(x + x * self.gate(x).softmax(0))  # <- here


class Broken_samples_sorted(TorchEncoder):
    def finish(self, x: Tensor) -> Tensor:
        return x.sort(0).values  # <- here


class Sound_flattened_and_back(SdpaEncoder):
    def finish(self, x: Tensor) -> Tensor:
        return self.norm(x.flatten(0, 1)).view_as(x)


class Sound_statistics_per_token(FusedEncoder):
    def finish(self, x: Tensor) -> Tensor:
        return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True) + 1e-5)
