"""Repairs of shapes, embeddings and positions that are tried on a running model.

Kinds: `keep_positions` (rearrange axes so that every position stays whole), `batch_first` (flip that flag of torch's
attention modules), `add_positions` (add a sinusoid to what an operation gives), `positions_along_sequence` (in
place of what
a sum adds along the batch, a sinusoid along the sequence), `sinusoid_table` (write the right sines into a table),
`keep_axes` (squeeze only what is squeezed usually), `no_nested_tensor` (switch that path of torch's encoder off),
`register_buffers` (make buffers of plain attributes).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from encdoctor.lab.compare import axis_of
from encdoctor.lab.lab import Lab, NotMeasured, Treatment
from encdoctor.lab.repair.block_repairs import BLOCK_REPAIRS
from encdoctor.lab.trace import Edit, Operation
from encdoctor.model import Trial


def _keep_positions(lab: Lab, trial: Trial) -> Treatment:
    return Treatment(edits=dict.fromkeys(trial.at, _rearranged(int(trial.value or 0))))


def _rearranged(length: int) -> Edit:
    """What a view or reshape was to give, with the position axis carried to where the result has it."""

    def edit(op: Operation) -> Tensor:
        x: Tensor = op.args[0]
        output: Tensor = op.output
        samples = op.keep.shape[0]
        into = axis_of(output, length)
        if axis_of(x, samples) is None and x.shape[0] % samples == 0:
            x = x.unflatten(0, (samples, -1))
        batch, position = axis_of(x, samples), axis_of(x, length)
        if batch is None or position is None or into is None:
            return output
        onto = axis_of(output, samples)
        rest = [i for i in range(x.dim()) if i not in (batch, position)]
        rows = x.permute(batch, position, *rest).reshape(samples, length, -1)
        if onto is None:
            folded = [output.shape[0] // samples, *(n for i, n in enumerate(output.shape) if i not in (0, into))]
            split = rows.reshape(samples, length, *folded).movedim(1, into + 1)
            return split.flatten(0, 1)
        others = [n for i, n in enumerate(output.shape) if i not in (into, onto)]
        shaped = rows.reshape(samples, length, *others)
        return shaped.movedim((0, 1), (onto, into)).contiguous()

    return edit


def _batch_first(lab: Lab, trial: Trial) -> Treatment:
    def flip(model: nn.Module) -> None:
        for name in trial.at:
            for module in model.get_submodule(name).modules():
                if isinstance(module, nn.MultiheadAttention):
                    module.batch_first = not module.batch_first

    return Treatment(prepare=flip)


def _add_positions(lab: Lab, trial: Trial) -> Treatment:
    def edit(op: Operation) -> Tensor:
        output: Tensor = op.output
        axis = axis_of(output, op.keep.shape[1])
        if axis is None or not output.is_floating_point():
            raise NotMeasured("the looked-up vectors have no position axis of their own")
        shape = [1] * output.dim()
        shape[axis], shape[-1] = output.shape[axis], output.shape[-1]
        return output + output.std() * sinusoid(output.shape[axis], output.shape[-1]).to(output).reshape(shape)

    return Treatment(edits=dict.fromkeys(trial.at, edit))


def _positions_along_sequence(lab: Lab, trial: Trial) -> Treatment:
    def edit(op: Operation) -> Tensor:
        """A sum whose second part varies along the batch, with that part's rows given to the positions instead."""
        output: Tensor = op.output
        samples, length = op.keep.shape
        batch, axis = axis_of(output, samples), axis_of(output, length)
        added = [a for a in op.args if isinstance(a, Tensor) and a.shape != output.shape]
        if batch is None or axis is None or len(added) != 1:
            raise NotMeasured("what is added along the batch was not recognised")
        shape = [1] * output.dim()
        shape[axis], shape[-1] = length, output.shape[-1]
        return output - added[0] + sinusoid(length, output.shape[-1]).to(output).reshape(shape)

    return Treatment(edits=dict.fromkeys(trial.at, edit))


def _sinusoid_table(lab: Lab, trial: Trial) -> Treatment:
    def write(model: nn.Module) -> None:
        owner, _, attribute = trial.at[0].rpartition(".")
        table = getattr(model.get_submodule(owner), attribute)
        right = sinusoid(table.numel() // table.shape[-1], table.shape[-1]).to(table)
        with torch.no_grad():
            table.copy_(right.reshape(table.shape))

    return Treatment(prepare=write)


def _keep_axes(lab: Lab, trial: Trial) -> Treatment:
    """Squeezes drop the axes that they drop in the usual batch, and no others."""
    usual = {n.key: n for n in lab.trace(replace(lab.full, dtype=lab.own_dtype)).nodes if n.key in trial.at}

    def kept(key: str) -> Edit:
        shape = usual[key].refs[0].tensor.shape
        axes = [axis for axis, size in enumerate(shape) if size == 1]
        return lambda op: op.args[0].squeeze(axes) if axes else op.args[0].clone()

    return Treatment(edits={key: kept(key) for key in trial.at if key in usual})


def _no_nested_tensor(lab: Lab, trial: Trial) -> Treatment:
    def switch_off(model: nn.Module) -> None:
        for name in trial.at:
            encoder = model.get_submodule(name)
            encoder.enable_nested_tensor = encoder.use_nested_tensor = False  # type: ignore[assignment]

    return Treatment(prepare=switch_off)


def _register_buffers(lab: Lab, trial: Trial) -> Treatment:
    def register(model: nn.Module) -> None:
        for name in dict.fromkeys(trial.at):
            owner, _, attribute = name.rpartition(".")
            module = model.get_submodule(owner)
            if attribute in vars(module):
                module.register_buffer(attribute, vars(module).pop(attribute), persistent=False)

    return Treatment(prepare=register)


def sinusoid(length: int, width: int) -> Tensor:
    """The table of Vaswani et al. 2017, (length, width), float64."""
    rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(1e4) / width))
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)[:, :width]


REPAIRS: dict[str, Callable[[Lab, Trial], Treatment]] = {
    "keep_positions": _keep_positions,
    "batch_first": _batch_first,
    "add_positions": _add_positions,
    "keep_axes": _keep_axes,
    "no_nested_tensor": _no_nested_tensor,
    "register_buffers": _register_buffers,
    "sinusoid_table": _sinusoid_table,
    "positions_along_sequence": _positions_along_sequence,
    **BLOCK_REPAIRS,
}
