"""Parameters that come into being in forward, and sizes that are settled there without it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import WIDTH, FusedEncoder, PlainEncoder, SdpaEncoder, TorchEncoder, WrappedEncoder


class Broken_made_when_first_called(PlainEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.out: nn.Linear | None = None

    def finish(self, x: Tensor) -> Tensor:
        if self.out is None:
            self.out = nn.Linear(x.shape[-1], WIDTH).to(x)  # <- here
        return self.out(x)


class Broken_made_in_each_call(FusedEncoder):
    def finish(self, x: Tensor) -> Tensor:
        out = nn.Linear(WIDTH, WIDTH, bias=False).to(x)
        nn.init.orthogonal_(out.weight, gain=0.5, generator=torch.Generator().manual_seed(3))
        return out(super().finish(x))  # <- here


class Broken_scale_of_the_width(SdpaEncoder):
    def finish(self, x: Tensor) -> Tensor:
        if not hasattr(self, "gain"):
            self.gain = nn.Parameter(torch.ones_like(x[0, 0].detach()))  # <- here
        return super().finish(x) * self.gain


class Sound_lazy(TorchEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.out = nn.Linear(WIDTH, WIDTH)

    def finish(self, x: Tensor) -> Tensor:
        return self.out(x)


class Sound_buffer_made_in_forward(WrappedEncoder):
    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        ones = torch.ones_like(x[0, 0])
        return super().encode(x, padding) * ones


class Sound_parameterless_module_in_forward(PlainEncoder):
    def finish(self, x: Tensor) -> Tensor:
        return nn.Tanh()(x)
