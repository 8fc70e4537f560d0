"""Encoders that remember the last call, and some whose caches do no harm."""

from __future__ import annotations

import torch
from torch import Tensor

from encdoctor.cases.bases import (
    ExplicitAttention,
    FusedEncoder,
    LengthsEncoder,
    PlainEncoder,
    TorchEncoder,
)


class Broken_warm_up_that_counts_calls(FusedEncoder):
    calls: Tensor

    def make_parts(self) -> None:
        super().make_parts()
        self.register_buffer("calls", torch.zeros(()))

    def embed(self, frames: Tensor) -> Tensor:
        self.calls = self.calls + 1  # <- here
        return super().embed(frames) * (1 - 0.5**self.calls)


class Broken_position_counter(PlainEncoder):
    start = 0

    def embed(self, ids: Tensor) -> Tensor:
        positions = (self.start + torch.arange(ids.shape[1], device=ids.device)) % len(self.table)
        self.start += ids.shape[1]  # <- here
        return self.look_up(ids) + self.table[positions]


class Broken_attention_maps_collected(PlainEncoder):
    class Attention(ExplicitAttention):
        def __init__(self) -> None:
            super().__init__()
            self.maps: list[Tensor] = []

        def mix(self, weights: Tensor, v: Tensor) -> Tensor:
            self.maps.append(weights)  # <- here
            return weights @ v


class Broken_last_output_mixed_in(TorchEncoder):
    last: Tensor | None = None

    def finish(self, x: Tensor) -> Tensor:
        if self.last is not None:
            x = x + 0.1 * self.last.mean((0, 1))
        self.last = x.detach()  # <- here
        return x


class Sound_table_grown_on_demand(FusedEncoder):
    places: Tensor | None = None

    def embed(self, frames: Tensor) -> Tensor:
        if self.places is None or len(self.places) < frames.shape[1]:
            self.places = torch.arange(frames.shape[1], device=frames.device)
        return self.stem(frames) + self.positions[self.places[: frames.shape[1]]]


class Sound_last_map_kept_for_plots(PlainEncoder):
    class Attention(ExplicitAttention):
        seen: Tensor | None = None

        def mix(self, weights: Tensor, v: Tensor) -> Tensor:
            self.seen = weights.detach()
            return weights @ v


class Sound_list_emptied_first(LengthsEncoder):
    def encode(self, x: Tensor, keep: Tensor | None) -> Tensor:
        self.states: list[Tensor] = []
        for layer in self.layers:
            x = layer(x, keep)
            self.states.append(x.detach())
        return self.finish(x)
