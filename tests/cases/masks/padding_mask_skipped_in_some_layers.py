"""Stacks in which some layer goes without the mask, and stacks in which one is special."""

from __future__ import annotations

from torch import Tensor, nn

from encdoctor.cases.bases import (
    ExplicitAttention,
    LengthsEncoder,
    PlainEncoder,
    SdpaEncoder,
    TorchEncoder,
    WrappedEncoder,
)


class Broken_first_layer_only(PlainEncoder):
    def encode(self, x: Tensor, keep: Tensor | None) -> Tensor:
        for number, layer in enumerate(self.layers):
            x = layer(x, keep if number == 0 else None)  # <- here
        return self.finish(x)


class Broken_last_layer_apart(SdpaEncoder):
    def encode(self, x: Tensor, keep: Tensor | None) -> Tensor:
        for layer in self.layers[:-1]:
            x = layer(x, keep)
        return self.finish(self.layers[-1](x, None))  # <- here


class Broken_every_second(TorchEncoder):
    def encode(self, x: Tensor, keep: Tensor | None) -> Tensor:
        for masked, layer in zip((False, True), self.layers, strict=True):
            x = layer(x, keep) if masked else layer(x, None)  # <- here
        return x


class Broken_encoder_after_encoder(WrappedEncoder):
    def __init__(self) -> None:
        super().__init__()
        self.top = nn.TransformerEncoder(self.make_layer(), 1, enable_nested_tensor=False)

    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.top(self.encoder(x, src_key_padding_mask=padding))  # <- here


class Sound_mask_by_lengths_in_every_layer(LengthsEncoder):
    pass


class Sound_filled_here_and_weighed_there(PlainEncoder):
    def make_layers(self) -> nn.ModuleList:
        layers = super().make_layers()
        layers[1].attention = WeighedAttention()
        return layers


class WeighedAttention(ExplicitAttention):
    def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
        return scores

    def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
        odds = (scores - scores.amax(-1, keepdim=True)).exp()
        odds = odds if keep is None else odds * keep[:, None, None, :]
        return odds / odds.sum(-1, keepdim=True).clamp(min=1e-6)
