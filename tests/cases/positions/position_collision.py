"""Encoders that number several tokens alike, and sound ones."""

from __future__ import annotations

import torch
from torch import Tensor

from encdoctor.cases.bases import FusedEncoder, SdpaEncoder, TorchEncoder, WrappedEncoder


class Broken_halved(SdpaEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device) // 2
        return self.tokens(ids) + self.positions(places)  # <- here


class Broken_repeated_every_eight(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        places = torch.arange(frames.shape[1], device=frames.device) % 8
        return self.stem(frames) + self.positions[places]  # <- here


class Broken_clamped_early(TorchEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device).clamp(max=5)
        return self.tokens(ids) + self.positions(places)  # <- here


class Sound_numbered(SdpaEncoder):
    pass


class Sound_counted_over_tokens(WrappedEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        return self.tokens(ids) + self.positions((ids != 0).long().cumsum(1))
