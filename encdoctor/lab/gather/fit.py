"""Learns eight random samples by heart: what a healthy encoder does in a few dozen steps."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from encdoctor.evidence.learning import Broke, TinyFit
from encdoctor.lab.batches import Call
from encdoctor.lab.cuts import FlowRecorder, first_bad_gradient, first_unsound
from encdoctor.lab.gather.influence import real_outputs
from encdoctor.lab.lab import Lab, NotMeasured
from encdoctor.lab.situations import Situation
from encdoctor.lab.trace import ModulePath
from encdoctor.model import Place

SAMPLES, CLASSES = 8, 4
# Learning rates in the order they are tried, and the share of the budget of passes that each may use.
RATES = ((1e-3, 24), (5e-3, 20), (2e-4, 16))
GOAL = 0.1


def gather_fit(lab: Lab) -> TinyFit:
    """A linear head on the mean of the real outputs, AdamW, dropout off; stops at the first success."""
    chance = math.log(CLASSES)
    used, best, broke = 0, None, None
    for rate, steps in RATES:
        losses, failed = _train(lab, rate, steps, chance * GOAL)
        broke = broke or (failed if rate == RATES[0][0] else None)
        used += len(losses)
        fit = _judge(losses, rate, chance, used)
        if best is None or fit.reached or (fit.finite and min(fit.losses) < min(best.losses)):
            best = fit
        if fit.reached:
            break
    assert best is not None
    return replace(best, steps=used, broke=broke)


def _judge(losses: list[float], rate: float, chance: float, used: int) -> TinyFit:
    finite = all(math.isfinite(x) for x in losses)
    reached = finite and losses[-1] < chance * GOAL
    half = len(losses) // 2
    falling = finite and min(losses[half:]) < 0.8 * min(losses[: half or 1])
    return TinyFit(True, "", tuple(losses), rate, chance, chance * GOAL, reached, falling, finite, used)


def _train(lab: Lab, rate: float, steps: int, goal: float) -> tuple[list[float], Broke | None]:
    model = lab.fresh().to(torch.float32)
    quiet_dropout(model)
    situation = _situation(lab)
    labels = torch.arange(SAMPLES, device=lab.device) % CLASSES
    head: nn.Linear | None = None
    optimiser: torch.optim.Optimizer | None = None
    losses: list[float] = []
    for _ in range(steps):
        with torch.enable_grad():
            features = _features(lab, model, situation)
            if head is None:
                torch.manual_seed(3)
                head = nn.Linear(features.shape[-1], CLASSES, device=features.device)
                wanting = [p for p in model.parameters() if p.requires_grad]
                optimiser = torch.optim.AdamW([*wanting, *head.parameters()], lr=rate, weight_decay=0.0)
            shift, scale = standardise(features.detach())
            loss = functional.cross_entropy(head((features - shift) / scale), labels)
            losses.append(float(loss.detach()))
            if losses[-1] < goal:
                break
            if not math.isfinite(losses[-1]):
                return losses, _broke(lab, model, situation, len(losses) - 1)
            assert optimiser is not None
            optimiser.zero_grad()
            lab.backward(loss)
            if not _finite(model):
                return losses, _broke(lab, model, situation, len(losses) - 1)
            optimiser.step()
    return losses, None


def _finite(model: nn.Module) -> bool:
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    return not grads or bool(torch.stack([torch.isfinite(g).all() for g in grads]).all())


def _broke(lab: Lab, model: nn.Module, situation: Situation, step: int) -> Broke:
    """The same step once more, recorded: the first call that is not finite, forward or back."""
    recorders: list[FlowRecorder] = []

    def recording(path: ModulePath, call: Call) -> FlowRecorder:
        recorders.append(FlowRecorder(lab.origin, path, call.content))
        return recorders[0]

    with torch.enable_grad():
        features = _mean(lab, lab.forward(model, situation, inside=recording).tensor, situation)
        found = first_unsound(recorders[0].flow)
        if found is not None:
            return Broke(step, found.name, False, found.place)
        lab.backward(features.square().sum())
    found = first_bad_gradient(recorders[0].flow)
    return Broke(step, found.name, True, found.place) if found else Broke(step, "", True, Place())


def _situation(lab: Lab) -> Situation:
    base = lab.full
    lengths = (base.length,) * SAMPLES
    return replace(base, lengths=lengths, dtype="float32", training=True, grad=True)


def _features(lab: Lab, model: nn.Module, situation: Situation) -> Tensor:
    """(8, F): the mean of the real outputs."""
    output = lab.forward(model, situation).tensor
    if output.shape[0] != SAMPLES:
        raise NotMeasured(f"the output has {output.shape[0]} rows for {SAMPLES} samples")
    return _mean(lab, output, situation)


def _mean(lab: Lab, output: Tensor, situation: Situation) -> Tensor:
    real = real_outputs(lab, output, situation)[..., None]
    return torch.where(real, output, 0.0).sum(1).float() / real.sum(1).clamp(min=1)


def standardise(features: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and spread over samples, taken anew in each step as batch norm does.

    So the head is blind to the output's scale, and to an offset that moves while it trains.

    A spread of less than 1e-5 of the features' size is round-off, not information, and is not enlarged.
    """
    size = features.square().mean().sqrt()
    return features.mean(0), features.std(0).clamp(min=float(1e-5 * size) or 1.0)


def quiet_dropout(model: nn.Module) -> None:
    """Sets the rates of dropout modules to zero; functional dropout keeps its own."""
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        elif isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
