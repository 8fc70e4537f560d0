"""Derivatives that are wrong, and gradients that are replaced on purpose."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import (
    WIDTH,
    ExplicitAttention,
    FusedEncoder,
    PlainEncoder,
    PostNormLayer,
    SdpaEncoder,
    TorchEncoder,
)


class Broken_softmax_by_hand(PlainEncoder):
    class Softmax(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, scores: Tensor) -> Tensor:
            weights = scores.softmax(-1)
            ctx.save_for_backward(weights)
            return weights

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:  # <- here
            (weights,) = ctx.saved_tensors
            return weights * (1 - weights) * grad

    class Attention(ExplicitAttention):
        def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
            return Broken_softmax_by_hand.Softmax.apply(scores)  # type: ignore[no-untyped-call]


class Broken_scaled_through_data(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        x = super().embed(frames)
        x.data.mul_(0.5)  # <- here
        return x * x


class Broken_activation_by_hand(SdpaEncoder):
    class Swish(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * torch.sigmoid(x)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:  # <- here
            (x,) = ctx.saved_tensors
            return grad * torch.sigmoid(x)

    class Layer(PostNormLayer):
        def make_feed(self) -> nn.Module:
            return nn.Sequential(nn.Linear(WIDTH, WIDTH), Activation(), nn.Linear(WIDTH, WIDTH))


class Activation(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return Broken_activation_by_hand.Swish.apply(x)  # type: ignore[no-untyped-call]


class Right(torch.autograd.Function):
    """x³ with its derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 3 * x**2 * grad


class Reversed(torch.autograd.Function):
    """The input, with a gradient of the opposite sign (Ganin and Lempitsky 2015)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return -grad


class Signs(torch.autograd.Function):
    """Signs, straight through (Bengio et al. 2013)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.sign()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


class Sound_by_hand(FusedEncoder):
    def finish(self, x: Tensor) -> Tensor:
        return Right.apply(super().finish(x))  # type: ignore[no-untyped-call]


class Sound_gradient_reversed(TorchEncoder):
    def finish(self, x: Tensor) -> Tensor:
        return x + Reversed.apply(x).tanh()  # type: ignore[no-untyped-call]


class Sound_straight_through(PlainEncoder):
    def finish(self, x: Tensor) -> Tensor:
        return Signs.apply(x)  # type: ignore[no-untyped-call]
