"""Keeps a model that cannot be copied as it was given, while it is run in place."""

from __future__ import annotations

import torch
from torch import nn


class Custody:
    """A model's values, gradients, modes and `requires_grad`, to be put back at any time.

    Hooks and attributes that the model sets on itself while it runs are not kept; the lab adds no hooks to modules.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._values = [(t, t.detach().clone()) for t in (*model.parameters(), *model.buffers())]
        self._grads = [(p, None if p.grad is None else p.grad.clone(), p.requires_grad) for p in model.parameters()]
        self._modes = [(module, module.training) for module in model.modules()]

    def restore(self) -> None:
        """Puts everything back."""
        with torch.no_grad():
            for tensor, value in self._values:
                tensor.data = tensor.data if tensor.dtype == value.dtype else tensor.data.to(value.dtype)
                tensor.copy_(value)
        for parameter, grad, wanted in self._grads:
            parameter.requires_grad_(wanted)
            parameter.grad = grad
        for module, training in self._modes:
            module.training = training
