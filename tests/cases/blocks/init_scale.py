"""Weights that are drawn too large, and weights that are small or zero."""

from __future__ import annotations

from torch import nn

from encdoctor.cases.bases import FusedEncoder, PlainEncoder, SdpaEncoder, TorchEncoder


class Broken_unit_normal(PlainEncoder):
    def __init__(self) -> None:
        super().__init__()
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight)  # <- here


class Broken_uniform(FusedEncoder):
    def make_layers(self) -> nn.ModuleList:
        layers = super().make_layers()
        for parameter in layers.parameters():
            if parameter.dim() > 1:
                nn.init.uniform_(parameter, -1, 1)  # <- here
        return layers


class Broken_gain_of_ten(TorchEncoder):
    def __init__(self) -> None:
        super().__init__()
        for parameter in self.layers.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter, gain=10.0)  # <- here


class Sound_bert(SdpaEncoder):
    def __init__(self) -> None:
        super().__init__()
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)


class Sound_orthogonal(PlainEncoder):
    def __init__(self) -> None:
        super().__init__()
        for module in self.layers.modules():
            if isinstance(module, nn.Linear):
                nn.init.orthogonal_(module.weight)
