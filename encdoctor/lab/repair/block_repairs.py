"""Repairs of weights and norms that are tried on a copy of the model.

Kinds: `rescale_weights` (bring the spread of these parameters to one over the root of their fan-in), `unit_gains` (set
these parameters to one), `redraw` (draw these parameters anew with a spread of one over the root of their fan-in),
`over_features` (take the statistics of norms over the last axis).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from encdoctor.lab.lab import Lab, Treatment
from encdoctor.lab.trace import Operation
from encdoctor.model import Trial


def _rescale(weight: Tensor) -> None:
    weight.mul_(_fan_in(weight) ** -0.5 / weight.std(correction=0).clamp(min=1e-12))


def _ones(weight: Tensor) -> None:
    weight.fill_(1.0)


def _redraw(weight: Tensor) -> None:
    generator = torch.Generator().manual_seed(3)
    drawn = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
    weight.copy_(drawn * _fan_in(weight) ** -0.5)


def _fan_in(weight: Tensor) -> int:
    return max(1, weight[0].numel()) if weight.dim() > 1 else 1


def _changing(change: Callable[[Tensor], None]) -> Callable[[Lab, Trial], Treatment]:
    def make(lab: Lab, trial: Trial) -> Treatment:
        def prepare(model: nn.Module) -> None:
            parameters = dict(model.named_parameters(remove_duplicate=False))
            with torch.no_grad():
                for name in trial.at:
                    change(parameters[name])

        return Treatment(prepare=prepare)

    return make


def _over_features(lab: Lab, trial: Trial) -> Treatment:
    return Treatment(edits=dict.fromkeys(trial.at, _along_features))


def _along_features(op: Operation) -> Any:
    """The same statistic over the last axis; a group norm over its channels as one of each position."""
    name = op.function._schema.name.split("::")[-1]
    if name == "native_group_norm":
        x = op.args[0]
        spread = (x.var(1, keepdim=True, correction=0) + 1e-5).sqrt()
        return ((x - x.mean(1, keepdim=True)) / spread, *op.output[1:])
    if name in ("mean", "var", "std", "sum", "var_mean") and len(op.args) > 1:
        return op.function(op.args[0], [-1], *op.args[2:], **op.kwargs)
    return op.output


BLOCK_REPAIRS: dict[str, Callable[[Lab, Trial], Treatment]] = {
    "rescale_weights": _changing(_rescale),
    "unit_gains": _changing(_ones),
    "redraw": _changing(_redraw),
    "over_features": _over_features,
}
