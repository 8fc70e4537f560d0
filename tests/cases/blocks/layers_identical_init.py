"""Layers that start with equal weights, and layers that do not."""

from __future__ import annotations

import copy

from torch import nn

from encdoctor.cases.bases import LAYERS, FusedEncoder, PlainEncoder


class Broken_deep_copies(PlainEncoder):
    def __init__(self) -> None:
        super().__init__()
        layer = self.Layer(self.Attention())
        self.layers = nn.ModuleList(copy.deepcopy(layer) for _ in range(LAYERS))  # <- here


class Sound_drawn_again(FusedEncoder):
    def __init__(self) -> None:
        super().__init__()
        layer = self.Layer(self.Attention())
        self.layers = nn.ModuleList(copy.deepcopy(layer) for _ in range(LAYERS))
        for parameter in self.layers.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
