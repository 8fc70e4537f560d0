"""Layers that the optimiser never hears of, and plain containers that hide nothing."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import (
    HEADS,
    LAYERS,
    WIDTH,
    FusedEncoder,
    PlainEncoder,
    PostNormLayer,
    SdpaEncoder,
    TorchEncoder,
    WrappedEncoder,
)


class Broken_plain_list(PlainEncoder):
    def __init__(self) -> None:
        super().__init__()
        del self.layers
        self.blocks = [self.Layer(self.Attention()) for _ in range(LAYERS)]  # <- here

    def encode(self, x: Tensor, keep: Tensor | None) -> Tensor:
        for block in self.blocks:
            x = block(x, keep)
        return x


class Broken_plain_dict(FusedEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.ends = {"in": nn.Linear(WIDTH, WIDTH), "out": nn.Linear(WIDTH, WIDTH)}  # <- here

    def embed(self, frames: Tensor) -> Tensor:
        return super().embed(self.ends["in"](frames))

    def finish(self, x: Tensor) -> Tensor:
        return self.ends["out"](super().finish(x))


class Broken_pairs_in_a_list(SdpaEncoder):
    class Layer(PostNormLayer):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.gates = [(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))]  # <- here

        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            for gate, value in self.gates:
                x = x + torch.sigmoid(gate(x)) * value(x)
            return super().forward(x, keep)


class Broken_list_of_torch_layers(WrappedEncoder):
    def make_layer(self) -> nn.TransformerEncoderLayer:
        return nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout=0.0, batch_first=True)

    def __init__(self) -> None:
        super().__init__()
        del self.encoder
        self.stack = []  # <- here
        for _ in range(LAYERS):
            self.stack.append(self.make_layer())

    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        for layer in self.stack:
            x = layer(x, src_key_padding_mask=padding)
        return x


class Broken_tuple_of_heads(TorchEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.mixers = tuple(nn.Linear(WIDTH, WIDTH // HEADS) for _ in range(HEADS))  # <- here

    def finish(self, x: Tensor) -> Tensor:
        return torch.cat([mixer(x) for mixer in self.mixers], -1)


class Sound_list_beside_the_registered_one(PlainEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.order = list(self.layers)

    def encode(self, x: Tensor, keep: Tensor | None) -> Tensor:
        for layer in self.order:
            x = layer(x, keep)
        return x


class Sound_list_without_parameters(SdpaEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.steps = [nn.Tanh(), nn.GELU()]

    def embed(self, ids: Tensor) -> Tensor:
        x = super().embed(ids)
        for step in self.steps:
            x = step(x)
        return x


class Sound_registered_by_name(TorchEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.ends = [nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)]
        for number, end in enumerate(self.ends):
            self.add_module(f"end{number}", end)

    def finish(self, x: Tensor) -> Tensor:
        for end in self.ends:
            x = end(x)
        return x


class Sound_dict_of_modules(FusedEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.ends = nn.ModuleDict({"out": nn.Linear(WIDTH, WIDTH)})

    def finish(self, x: Tensor) -> Tensor:
        return self.ends["out"](super().finish(x))
