"""Parameters that leave the range of the function that reads them, and parameters that cannot."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encdoctor.cases.bases import WIDTH, FusedEncoder, PlainEncoder, SdpaEncoder, TorchEncoder


class Broken_root_of_a_variance(PlainEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.variance = nn.Parameter(torch.full((WIDTH,), 2e-3))

    def finish(self, x: Tensor) -> Tensor:
        return x * self.variance.sqrt()  # <- here


class Broken_log_of_a_temperature(FusedEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.temperature = nn.Parameter(torch.full((WIDTH,), 3e-3))

    def finish(self, x: Tensor) -> Tensor:
        return super().finish(x) * torch.log(self.temperature)  # <- here


class Broken_angle_of_a_cosine(SdpaEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.cosine = nn.Parameter(torch.full((WIDTH,), 0.997))

    def finish(self, x: Tensor) -> Tensor:
        return super().finish(x) * torch.acos(self.cosine)  # <- here


class Sound_variance_kept_positive(PlainEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.raw = nn.Parameter(torch.full((WIDTH,), -6.0))

    def finish(self, x: Tensor) -> Tensor:
        return x * F.softplus(self.raw).sqrt()


class Sound_logarithm_learned(TorchEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.log_gain = nn.Parameter(torch.zeros(WIDTH))

    def finish(self, x: Tensor) -> Tensor:
        return x * self.log_gain.exp()
