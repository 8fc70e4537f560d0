"""Things that a target's text can name, sound and unsound."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Plain(nn.Module):
    """Builds without arguments."""

    def __init__(self, width: int = 2) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.inner(x)
        return mixed


class Needy(Plain):
    """Has required arguments, and a constructor that refuses some."""

    def __init__(self, d_model: int, *, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__(d_model)
        if d_model % num_heads:
            raise ValueError(f"{d_model} is not divisible by {num_heads}")
        self.dropout = dropout


class Namespace:
    """Is no model, and holds one."""

    class Inner(Plain):
        """Is named with a dot."""


class Open(Plain):
    """Takes whatever it is given."""

    def __init__(self, **anything: object) -> None:
        super().__init__()
        self.anything = anything


class Forwardless(nn.Module):
    """Has no forward."""


instance = Plain()
stack = nn.Sequential(Plain(), nn.LayerNorm(2))
wrapped = nn.DataParallel(Plain())
compiled = torch.compile(Plain())


def factory() -> Plain:
    """Builds one."""
    return Plain()


def of_torch() -> nn.Module:
    """Builds one of an installed package's."""
    return nn.TransformerEncoderLayer(4, 2)


def pair() -> tuple[Plain, str]:
    """Builds one and something else."""
    return Plain(), "tokenizer"


def failing() -> Plain:
    """Does not get that far."""
    raise RuntimeError("no weights here")
