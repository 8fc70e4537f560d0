"""Layers that take no part, and lists that are read in unusual ways."""

from __future__ import annotations

from torch import Tensor, nn

from encdoctor.cases.bases import WIDTH, FusedEncoder, PlainEncoder, SdpaEncoder, TorchEncoder, WrappedEncoder


class Broken_always_the_first(PlainEncoder):
    def encode(self, x: Tensor, keep: Tensor | None) -> Tensor:
        for _ in range(len(self.layers)):
            x = self.layers[0](x, keep)  # <- here
        return x


class Broken_each_reads_the_embedding(TorchEncoder):
    def encode(self, x: Tensor, keep: Tensor | None) -> Tensor:
        y = x
        for layer in self.layers:
            y = layer(x, keep)  # <- here
        return y


class Broken_last_one_left_out(SdpaEncoder):
    def encode(self, x: Tensor, keep: Tensor | None) -> Tensor:
        for layer in self.layers[:-1]:
            x = layer(x, keep)  # <- here
        return self.finish(x)


class Broken_stack_of_torch_layers(WrappedEncoder):
    def __init__(self) -> None:
        super().__init__()
        self.stack = nn.ModuleList([self.make_layer() for _ in range(3)])
        del self.encoder

    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        for i in range(1, 3):
            x = self.stack[i](x, src_key_padding_mask=padding)  # <- here
        return x


class Sound_reached_by_index(PlainEncoder):
    def encode(self, x: Tensor, keep: Tensor | None) -> Tensor:
        for i in range(len(self.layers)):
            x = self.layers[i](x, keep)
        return x


class Sound_weights_read_directly(FusedEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def finish(self, x: Tensor) -> Tensor:
        return nn.functional.linear(super().finish(x), self.first.weight @ self.last.weight, self.last.bias)


class Sound_two_outputs(SdpaEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.pooler = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """input_ids: (B, S). attention_mask: (B, S) int, 1 for tokens and 0 for padding."""
        hidden = super().forward(input_ids, attention_mask)
        return hidden, self.pooler(hidden[:, 0])
