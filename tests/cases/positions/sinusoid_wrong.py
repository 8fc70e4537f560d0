"""Encoders with position tables that slipped, and sound ones with other layouts and bases."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import LONGEST, WIDTH, FusedEncoder, PlainEncoder, TorchEncoder


class Broken_rates_grow(PlainEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        rates = 1e4 ** (torch.arange(0, WIDTH, 2) / WIDTH)  # <- here
        angles = torch.arange(LONGEST)[:, None] * rates
        self.register_buffer("table", torch.stack((angles.sin(), angles.cos()), -1).flatten(1), persistent=False)


class Broken_cosines_overwritten(FusedEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        del self.positions
        angles = torch.arange(LONGEST)[:, None] * 1e4 ** (-torch.arange(0, WIDTH, 2) / WIDTH)
        table = torch.zeros(LONGEST, WIDTH)
        table[:, 0::2] = angles.sin()  # <- here
        table[:, 0::2] = angles.cos()
        self.register_buffer("positions", table)


class Broken_pair_with_two_rates(TorchEncoder):
    table: Tensor

    def make_parts(self) -> None:
        super().make_parts()
        angles = torch.arange(LONGEST)[:, None] * 1e4 ** (-torch.arange(WIDTH) / WIDTH)  # <- here
        angles[:, 0::2], angles[:, 1::2] = angles[:, 0::2].sin(), angles[:, 1::2].cos()
        self.register_buffer("table", angles)

    def embed(self, ids: Tensor) -> Tensor:
        return self.tokens(ids) + self.table[: ids.shape[1]]


class Broken_integer_exponent(PlainEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        rates = 1e4 ** -(torch.arange(0, WIDTH, 2) // WIDTH)  # <- here
        angles = torch.arange(LONGEST)[:, None] * rates
        self.register_buffer("table", torch.cat((angles.sin(), angles.cos()), -1), persistent=False)


class Sound_halves_and_another_base(PlainEncoder):
    """Sines first, then cosines, base 1000, counted from one."""

    def make_parts(self) -> None:
        super().make_parts()
        angles = torch.arange(1, LONGEST + 1)[:, None] * 1e3 ** (-torch.arange(WIDTH // 2) / (WIDTH // 2 - 1))
        self.register_buffer("table", torch.cat((angles.sin(), angles.cos()), -1), persistent=False)


class Sound_sines_of_many_rates(PlainEncoder):
    """No cosines, but every position has a vector of its own, like its neighbours'."""

    def make_parts(self) -> None:
        super().make_parts()
        angles = torch.arange(LONGEST)[:, None] * 1e2 ** (-torch.arange(WIDTH) / WIDTH)
        self.register_buffer("table", angles.sin(), persistent=False)


class Sound_fixed_random_table(PlainEncoder):
    """No waves at all."""

    def make_parts(self) -> None:
        super().make_parts()
        self.register_buffer("table", nn.init.normal_(torch.empty(LONGEST, WIDTH)))
