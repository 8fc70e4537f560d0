"""State that is lost with the process, and state that any instance makes anew."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import (
    LONGEST,
    WIDTH,
    ExplicitAttention,
    FusedEncoder,
    PlainEncoder,
    SdpaEncoder,
    TorchEncoder,
    WrappedEncoder,
    sinusoid,
)


class Broken_random_table_not_saved(PlainEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.register_buffer("table", torch.randn(LONGEST, WIDTH), persistent=False)  # <- here


class Broken_projection_as_attribute(FusedEncoder):
    class Attention(ExplicitAttention):
        def __init__(self) -> None:
            super().__init__()
            self.features = torch.randn(WIDTH, WIDTH) / WIDTH**0.5  # <- here

        def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return super().project(x @ self.features.to(x))


class Broken_order_drawn_once(WrappedEncoder):
    def __init__(self) -> None:
        super().__init__()
        self.order = torch.randperm(WIDTH)  # <- here

    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        return super().encode(x, padding)[..., self.order]


class Broken_buffer_of_the_batch(SdpaEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        self.register_buffer("places", torch.arange(ids.shape[1]))  # <- here
        return self.tokens(ids) + self.positions(self.places)


class Sound_table_of_sines(TorchEncoder):
    waves: Tensor

    def make_parts(self) -> None:
        super().make_parts()
        self.register_buffer("waves", sinusoid(LONGEST, WIDTH), persistent=False)

    def embed(self, ids: Tensor) -> Tensor:
        return super().embed(ids) + self.waves[: ids.shape[1]]


class Sound_random_but_saved(FusedEncoder):
    features: Tensor

    def make_parts(self) -> None:
        super().make_parts()
        self.register_buffer("features", torch.randn(WIDTH, WIDTH) / WIDTH**0.5)

    def finish(self, x: Tensor) -> Tensor:
        return super().finish(x) @ self.features


class Sound_from_a_seed_of_its_own(PlainEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        drawn = torch.randn(LONGEST, WIDTH, generator=torch.Generator().manual_seed(7))
        self.register_buffer("table", drawn, persistent=False)


class Sound_remembers_a_number(SdpaEncoder):
    def finish(self, x: Tensor) -> Tensor:
        self.last_norm = x.norm().detach()
        return nn.functional.normalize(super().finish(x), dim=-1)
