"""Random parts whose gradient is switched off, and parts that are frozen for a reason."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import (
    LONGEST,
    WIDTH,
    FusedAttention,
    FusedEncoder,
    PlainEncoder,
    SdpaEncoder,
    TorchEncoder,
    WrappedEncoder,
    sinusoid,
)


class Broken_random_positions(FusedEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.positions = nn.Parameter(torch.randn(LONGEST, WIDTH), requires_grad=False)  # <- here


class Broken_tokens_by_call(PlainEncoder):
    def make_tokens(self) -> nn.Embedding:
        return super().make_tokens().requires_grad_(False)  # <- here


class Broken_projections_in_every_layer(FusedEncoder):
    class Attention(FusedAttention):
        def __init__(self) -> None:
            super().__init__()
            self.qkv.weight.requires_grad = False  # <- here


class Broken_stack_in_a_loop(WrappedEncoder):
    def __init__(self) -> None:
        super().__init__()
        for parameter in self.encoder.parameters():
            parameter.requires_grad = False  # <- here


class Broken_first_layer(SdpaEncoder):
    def make_layers(self) -> nn.ModuleList:
        layers = super().make_layers()
        layers[0].requires_grad_(False)  # <- here
        return layers


class Sound_table_of_sines(TorchEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.positions = nn.Embedding.from_pretrained(sinusoid(LONGEST, WIDTH), freeze=True)


class Sound_sines_as_a_parameter(FusedEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.positions = nn.Parameter(sinusoid(LONGEST, WIDTH), requires_grad=False)


class Sound_freezing_is_an_argument(SdpaEncoder):
    def __init__(self, freeze_embeddings: bool = True) -> None:
        super().__init__()
        self.tokens.requires_grad_(not freeze_embeddings)


class Sound_frozen_but_unused(PlainEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.step = nn.Parameter(torch.randn(1), requires_grad=False)

    def finish(self, x: Tensor) -> Tensor:
        return x if self.training else x + 0 * self.step
