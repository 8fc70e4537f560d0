"""One object in several places, and sharing that is meant."""

from __future__ import annotations

from torch import Tensor, nn

from encdoctor.cases.bases import LAYERS, FusedEncoder, PlainEncoder, SdpaEncoder, WrappedEncoder


class Broken_multiplied_list(PlainEncoder):
    def __init__(self) -> None:
        super().__init__()
        layer = self.Layer(self.Attention())
        self.layers = nn.ModuleList([layer] * LAYERS)  # <- here


class Broken_appended_again(SdpaEncoder):
    def __init__(self) -> None:
        super().__init__()
        layer = self.Layer(self.Attention())
        self.layers = nn.ModuleList()  # <- here
        for _ in range(LAYERS):
            self.layers.append(layer)


class Broken_torch_layer(WrappedEncoder):
    def __init__(self) -> None:
        super().__init__()
        del self.encoder
        layer = self.make_layer()
        self.stack = nn.ModuleList(layer for _ in range(LAYERS))  # <- here

    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        for layer in self.stack:
            x = layer(x, src_key_padding_mask=padding)
        return x


class Sound_own_layers(FusedEncoder):
    def encode(self, x: Tensor, keep: Tensor | None) -> Tensor:
        for layer in [*self.layers]:
            x = layer(x, keep)
        return self.finish(x)


class Sound_declared(PlainEncoder):
    """All layers share their weights, as in ALBERT."""

    def __init__(self) -> None:
        super().__init__()
        layer = self.Layer(self.Attention())
        self.layers = nn.ModuleList([layer] * LAYERS)
