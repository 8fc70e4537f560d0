"""One forward and backward from a random projection of the real outputs.

Not from a mean of squares: behind a LayerNorm that is constant and gives no gradient to anything before it.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from encdoctor.evidence.gradients import Gradients, ParameterGradient, TrunkPoint
from encdoctor.lab.batches import Call
from encdoctor.lab.cuts import Flow, FlowRecorder, rms, trunk
from encdoctor.lab.gather.influence import real_outputs, relative_change
from encdoctor.lab.lab import Lab
from encdoctor.lab.outputs import pick
from encdoctor.lab.situations import Situation
from encdoctor.lab.trace import ModulePath

# How many parameters without gradient are probed one by one; more are sampled evenly.
PROBED = 24
# A fall or growth along the trunk beyond this asks for the run in train mode, where batch norm has its scale.
SUSPICIOUS = 1e2
# LayerScale starts between 1e-6 and 0.1 (Touvron et al. 2021, Going deeper with Image Transformers).
SMALL_GAIN = 0.1


def gather_gradients(lab: Lab) -> Gradients:
    """Eval mode with gradients; train mode only after a symptom."""
    situation = replace(lab.padded, dtype=lab.dtype, grad=True)
    model = lab.fresh().to(getattr(torch, situation.dtype))
    flow, output = backward(lab, model, situation)
    points = _points(flow)
    train: tuple[TrunkPoint, ...] = ()
    opened: tuple[TrunkPoint, ...] = ()
    if _suspicious(points):
        train_model = lab.fresh().to(getattr(torch, situation.dtype))
        train = _points(backward(lab, train_model, replace(situation, training=True))[0])
        opened = train
        if open_gates(train_model):
            opened = _points(backward(lab, train_model, replace(situation, training=True))[0])
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    return Gradients(
        trunk=points,
        train=train,
        opened=opened,
        parameters=tuple(_parameters(lab, model, situation)),
        cuts=tuple(flow.cuts),
        finite=all(bool(torch.isfinite(g).all()) for g in grads),
        output_activation=rms(output),
    )


def backward(lab: Lab, model: nn.Module, situation: Situation) -> tuple[Flow, Tensor]:
    """Runs forward and backward on `model`, whose gradients are filled; returns the flow and the output.

    Raises NotMeasured where forward or backward raises.
    """
    model.zero_grad()
    recorders: list[FlowRecorder] = []

    def recording(path: ModulePath, call: Call) -> FlowRecorder:
        recorders.append(FlowRecorder(lab.origin, path, call.content))
        return recorders[0]

    with torch.enable_grad():
        ran = lab.forward(model, situation, inside=recording)
        output, flow = ran.tensor, recorders[0].flow
        recorders[0].finish(pick(ran.raw, lab.contract.output))
        if not output.requires_grad:
            return flow, output.detach()
        lab.backward(projection_loss(lab, output, situation))
    return flow, output.detach()


def projection_loss(lab: Lab, output: Tensor, situation: Situation) -> Tensor:
    """A fixed random projection of the real outputs, whose gradient there has root mean square 1."""
    generator = torch.Generator().manual_seed(11)
    weight = torch.randn(output.shape, generator=generator, dtype=torch.float64).to(output)
    real = real_outputs(lab, output, situation)[..., None]
    return (torch.where(real, output, 0.0) * weight).sum()


def _points(flow: Flow) -> tuple[TrunkPoint, ...]:
    return tuple(
        TrunkPoint(s.name, s.place, s.gradient, s.activation) for s in trunk(flow) if s.gradient is not None
    )


def open_gates(model: nn.Module) -> int:
    """Sets gains that start small and equal, or a single gate that starts at 0, to 1; returns how many there were."""
    opened = 0
    with torch.no_grad():
        for parameter in model.parameters():
            first = parameter.reshape(-1)[:1]
            constant = bool((parameter == first).all()) if parameter.numel() else False
            small = 0 < float(first.abs()) <= SMALL_GAIN if parameter.numel() else False
            closed = parameter.numel() == 1 and float(first) == 0
            if constant and (small or closed):
                parameter.fill_(1.0)
                opened += 1
    return opened


def _suspicious(points: tuple[TrunkPoint, ...]) -> bool:
    positive = [p.gradient for p in points if p.gradient > 0]
    return bool(positive) and max(positive) / min(positive) > SUSPICIOUS


def _parameters(lab: Lab, model: nn.Module, situation: Situation) -> list[ParameterGradient]:
    wanting = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    without = [n for n, p in wanting if p.grad is None or not bool(p.grad.any())]
    step = max(1, len(without) // PROBED)
    probed = set(without[::step])
    return [
        ParameterGradient(
            name,
            None if parameter.grad is None else rms(parameter.grad),
            rms(parameter.detach()),
            moves_output(lab, model, parameter, situation) if name in probed else None,
        )
        for name, parameter in wanting
    ]


def moves_output(lab: Lab, model: nn.Module, parameter: nn.Parameter, situation: Situation) -> float:
    """How far real outputs move when the parameter is changed by about its own size."""
    before = lab.run(replace(situation, grad=False)).tensor
    saved = parameter.detach().clone()
    generator = torch.Generator().manual_seed(5)
    noise = torch.randn(saved.shape, generator=generator, dtype=torch.float64).to(saved)
    with torch.no_grad():
        parameter.add_(noise * max(rms(saved), 0.1))
        ran = lab.forward(model, replace(situation, grad=False))
        parameter.copy_(saved)
    if ran.output is None or ran.output.shape != before.shape:
        return 0.0
    return relative_change(before, ran.output, real_outputs(lab, before, situation))
