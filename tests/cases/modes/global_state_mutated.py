"""Forwards that change settings of the process, and some that put them back."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from encdoctor.cases.bases import FusedEncoder, PlainEncoder, SdpaEncoder, TorchEncoder


class Broken_seeds_torch(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        torch.manual_seed(0)  # <- here
        return super().embed(frames) + 0.01 * torch.randn(frames.shape[-1]).to(frames)


class Broken_switches_the_fast_path_off(SdpaEncoder):
    def finish(self, x: Tensor) -> Tensor:
        torch.backends.mha.set_fastpath_enabled(False)  # <- here
        return super().finish(x)


class Broken_seeds_python(TorchEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        random.seed(1)  # <- here
        return super().embed(ids)


class Sound_generator_of_its_own(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        noise = torch.randn(frames.shape[-1], generator=torch.Generator().manual_seed(0)).to(frames)
        return super().embed(frames) + 0.01 * noise


class Sound_generators_put_back(PlainEncoder):
    def finish(self, x: Tensor) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            turn = torch.linalg.qr(torch.randn(x.shape[-1], x.shape[-1]))[0]
        return x @ turn.to(x)
