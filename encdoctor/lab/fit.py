"""Learns eight random samples by heart: what a healthy encoder does in a few dozen steps."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from encdoctor.evidence.learning import TinyFit
from encdoctor.lab.influence import real_outputs
from encdoctor.lab.lab import Lab, NotMeasured
from encdoctor.lab.situations import Situation

SAMPLES, CLASSES = 8, 4
# Learning rates in the order they are tried, and the share of the budget of passes that each may use.
RATES = ((1e-3, 24), (5e-3, 20), (2e-4, 16))
GOAL = 0.1


def gather_fit(lab: Lab) -> TinyFit:
    """A linear head on the mean of the real outputs, AdamW, dropout off; stops at the first success."""
    chance = math.log(CLASSES)
    used, best = 0, None
    for rate, steps in RATES:
        losses = _train(lab, rate, steps, chance * GOAL)
        used += len(losses)
        fit = _judge(losses, rate, chance, used)
        if best is None or fit.reached or (fit.finite and min(fit.losses) < min(best.losses)):
            best = fit
        if fit.reached:
            break
    assert best is not None
    return replace(best, steps=used)


def _judge(losses: list[float], rate: float, chance: float, used: int) -> TinyFit:
    finite = all(math.isfinite(x) for x in losses)
    reached = finite and losses[-1] < chance * GOAL
    half = len(losses) // 2
    falling = finite and min(losses[half:]) < 0.8 * min(losses[: half or 1])
    return TinyFit(
        True, "", tuple(losses), rate, chance, chance * GOAL, reached, falling, finite, used
    )


def _train(lab: Lab, rate: float, steps: int, goal: float) -> list[float]:
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
            if not math.isfinite(losses[-1]) or losses[-1] < goal:
                break
            assert optimiser is not None
            optimiser.zero_grad()
            lab.backward(loss)
            optimiser.step()
    return losses


def _situation(lab: Lab) -> Situation:
    base = lab.full
    lengths = (base.length,) * SAMPLES
    return replace(base, lengths=lengths, dtype="float32", training=True, grad=True)


def _features(lab: Lab, model: nn.Module, situation: Situation) -> Tensor:
    """(8, F): the mean of the real outputs."""
    output = lab.forward(model, situation).tensor
    if output.shape[0] != SAMPLES:
        raise NotMeasured(f"the output has {output.shape[0]} rows for {SAMPLES} samples")
    real = real_outputs(lab, output, situation)[..., None]
    return torch.where(real, output, 0.0).sum(1).float() / real.sum(1).clamp(min=1)


def standardise(features: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and spread over samples, taken anew in each step as batch norm does: a head that is blind to the output's
    scale, and to an offset that moves while it trains.

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
