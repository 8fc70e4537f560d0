"""Encoders whose table stays behind when they are moved, and sound ones."""

from __future__ import annotations

import torch
from torch import Tensor

from encdoctor.cases.bases import LONGEST, WIDTH, FusedEncoder, PlainEncoder, TorchEncoder, sinusoid


class Broken_plain_attribute(PlainEncoder):
    def make_parts(self) -> None:
        self.tokens = self.make_tokens()
        self.table = sinusoid(LONGEST, WIDTH)  # <- here


class Broken_rates_of_a_sinusoid(FusedEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        del self.positions
        self.rates = 1e4 ** (-torch.arange(0, WIDTH, 2) / WIDTH)  # <- here

    def embed(self, frames: Tensor) -> Tensor:
        angles = torch.arange(frames.shape[1], device=frames.device)[:, None] * self.rates
        return self.stem(frames) + torch.cat((angles.sin(), angles.cos()), -1).to(frames.dtype)


class Broken_table_in_a_list(TorchEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.tables = [sinusoid(LONGEST, WIDTH)]  # <- here

    def embed(self, ids: Tensor) -> Tensor:
        return self.tokens(ids) + self.positions.weight[: ids.shape[1]] + self.tables[0][: ids.shape[1]]


class Sound_moved_on_the_fly(PlainEncoder):
    def make_parts(self) -> None:
        self.tokens = self.make_tokens()
        self.table = sinusoid(LONGEST, WIDTH)

    def embed(self, ids: Tensor) -> Tensor:
        return self.look_up(ids) + self.table[: ids.shape[1]].to(self.tokens.weight)


class Sound_buffer(PlainEncoder):
    pass
