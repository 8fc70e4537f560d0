"""Training: AdamW, warm-up and cosine, clipping, accumulation, autocast, and checkpoints that resume exactly.

The batch is a function of the step's number, not the next item of a stream. Nothing about the data has to
be remembered, then: a resumed run sees the same batches, and on a CPU continues bit for bit.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Batch = tuple[Tensor, ...]
Loss = Callable[[nn.Module, Batch], Tensor]
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How to train; ``steps`` counts updates, each of ``accumulate`` batches."""

    steps: int = 1000
    learning_rate: float = 1e-3
    warmup: int = 100
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.98)
    clip: float = 1.0
    accumulate: int = 1
    precision: Literal["float32", "bfloat16", "float16"] = "float32"

    def __post_init__(self) -> None:
        if self.steps < 1 or self.accumulate < 1:
            raise ValueError("steps and accumulate must be at least 1")
        if not 0 <= self.warmup <= self.steps:
            raise ValueError(f"warmup ({self.warmup}) must be from 0 to steps ({self.steps})")
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, not {self.precision!r}")


@dataclass(frozen=True)
class Step:
    """What one update was like."""

    loss: float
    gradient_norm: float
    learning_rate: float


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """AdamW's groups: norms and biases are not decayed, since zero is no better a place for them."""
    spared = {
        id(parameter)
        for module in model.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if isinstance(module, nn.LayerNorm | nn.RMSNorm) or name == "bias"
    }
    parameters = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in parameters if id(p) not in spared], "weight_decay": weight_decay},
        {"params": [p for p in parameters if id(p) in spared], "weight_decay": 0.0},
    ]


def warmup_cosine(step: int, warmup: int, steps: int) -> float:
    """The learning rate's factor: linear up to 1 over ``warmup`` steps, then half a cosine down to 0."""
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(steps - warmup, 1)))


def classification_loss(label_smoothing: float = 0.0) -> Loss:
    """Cross-entropy for batches (inputs, [attention mask,] labels), labels of −100 left out.

    ``label_smoothing`` spreads that share of the target over all classes (Szegedy et al. 2016).
    """

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        *inputs, labels = batch
        logits: Tensor = model(*inputs)
        return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), label_smoothing=label_smoothing)

    return loss


def generator(seed: int, index: int) -> torch.Generator:
    """A random source of its own for each batch number: what makes ``batch(index)`` repeatable."""
    return torch.Generator().manual_seed(seed * 1_000_003 + index)


class Trainer:
    """Trains ``model`` on ``batch(0)``, ``batch(1)``, … by ``loss(model, batch)``."""

    def __init__(self, model: nn.Module, loss: Loss, batch: Callable[[int], Batch], config: TrainingConfig) -> None:
        self.model, self.loss, self.batch, self.config = model, loss, batch, config
        self.device = next(model.parameters()).device
        self.optimizer = torch.optim.AdamW(
            parameter_groups(model, config.weight_decay), lr=config.learning_rate, betas=config.betas
        )
        scaled = config.precision == "float16" and self.device.type != "cpu"
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=scaled)
        self.history: list[Step] = []

    def backward(self, index: int) -> float:
        """The loss of one batch, whose share of the gradient is added to what is there."""
        batch = tuple(t.to(self.device, non_blocking=True) for t in self.batch(index))
        dtype = PRECISIONS[self.config.precision]
        with torch.autocast(self.device.type, dtype, enabled=dtype != torch.float32):
            loss = self.loss(self.model, batch) / self.config.accumulate
        torch.autograd.backward(self.scaler.scale(loss))
        return loss.item()

    def step(self) -> Step:
        """One update."""
        config, number = self.config, len(self.history)
        self.model.train()
        rate = config.learning_rate * warmup_cosine(number, config.warmup, config.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss = sum(self.backward(number * config.accumulate + i) for i in range(config.accumulate))
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), config.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.history.append(Step(loss, norm.item(), rate))
        return self.history[-1]

    def run(self, until: int | None = None, progress: bool = True) -> list[Step]:
        """Updates up to number ``until`` (None: all), with a progress bar; returns the history."""
        from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        end = self.config.steps if until is None else until
        columns = (MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("loss {task.fields[loss]:.3f}"))
        with Progress(*Progress.get_default_columns()[:2], *columns, disable=not progress) as bar:
            task = bar.add_task("training", total=end, completed=len(self.history), loss=math.nan)
            while len(self.history) < end:
                bar.update(task, advance=1, loss=self.step().loss)
        return self.history

    def save(self, path: str | Path) -> None:
        """Writes everything that the next step depends on; a file already there is replaced at the end."""
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "history": [asdict(step) for step in self.history],
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state_all() if self.device.type == "cuda" else [],
        }
        unfinished = Path(f"{path}.unfinished")
        torch.save(state, unfinished)
        unfinished.replace(path)

    def resume(self, path: str | Path) -> None:
        """Continues from what :meth:`save` wrote, as if there had been no break."""
        state = torch.load(path, map_location="cpu", weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.history = [Step(**step) for step in state["history"]]
        torch.set_rng_state(state["random"])
        if state["random_cuda"]:
            torch.cuda.set_rng_state_all(state["random_cuda"])
