"""Pre-norm and post-norm, 12 layers deep, trained without warm-up: each layer's gradient, and both losses.

Post-norm puts a norm on the residual path itself: at the start the gradients near the output are larger than
pre-norm's, which shrink with depth, and a full learning rate from the first step on can throw the training
onto a plateau (Xiong et al. 2020). The task, with nothing to download: hidden words of Python's
documentation. A loss near the words' entropy means that only their frequencies were learned.

Run ``python benchmarks/norm_placement.py [--steps N] [--layers N] [--plot FILE]``.
"""

import argparse
from dataclasses import dataclass
from typing import Literal

import torch

from encdoctor.reference import Encoder, EncoderConfig, heads, training
from encdoctor.reference.demonstrations import MASK, documentation

VOCABULARY = 500


@dataclass
class Run:
    """One placement's gradient norm of each layer's feed-forward network at the start, and its losses."""

    gradients: list[float]
    losses: list[float]


def run(placement: Literal["pre", "post"], steps: int, layers: int, learning_rate: float) -> Run:
    """Trains one encoder; both placements start from the same seed and see the same batches."""
    torch.manual_seed(0)
    passages, _ = documentation(VOCABULARY, length=32)
    config = EncoderConfig(
        vocab_size=VOCABULARY, d_model=64, num_heads=4, num_layers=layers, d_ff=256,
        norm_placement=placement, dropout=0.0, attention_dropout=0.0,
    )  # fmt: skip
    model = heads.MaskedLanguageModel(Encoder(config))

    def batch(index: int) -> training.Batch:
        source = training.generator(1, index)
        ids = passages[torch.randint(len(passages), (32,), generator=source)]
        mask = torch.ones_like(ids, dtype=torch.bool)
        corrupted, labels = heads.hide_tokens(ids, mask, MASK, VOCABULARY, generator=source)
        return corrupted, mask, labels

    schedule = training.TrainingConfig(
        steps=steps, warmup=0, learning_rate=learning_rate, clip=float("inf"), weight_decay=0.0
    )
    trainer = training.Trainer(model, training.classification_loss(), batch, schedule)
    trainer.backward(0)
    gradients = []
    for layer in model.encoder.depth():
        squares = [p.grad.square().sum() for p in layer.feed_forward.parameters() if p.grad is not None]
        gradients.append(torch.stack(squares).sum().sqrt().item())
    trainer.optimizer.zero_grad()
    return Run(gradients, [step.loss for step in trainer.run()])


def plot(runs: dict[str, Run], path: str) -> None:
    """Saves the gradients by layer and the losses by step."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, result in runs.items():
        left.semilogy(range(1, len(result.gradients) + 1), result.gradients, marker="o", label=f"{name}-norm")
        right.plot(result.losses, linewidth=0.8, label=f"{name}-norm")
    left.set(xlabel="layer", ylabel="gradient norm at the start")
    right.set(xlabel="step, no warm-up", ylabel="training loss")
    right.axhline(entropy(), color="gray", linestyle="--", label="the words' entropy")
    left.legend()
    right.legend()
    figure.savefig(path)


def entropy() -> float:
    """The loss of predicting by the words' frequencies alone."""
    _, frequencies = documentation(VOCABULARY, length=32)
    return float(torch.special.entr(frequencies).sum())


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--plot", metavar="FILE", default="norm_placement.png")
    options = parser.parse_args()
    torch.set_num_threads(1)  # faster than more for models this small
    placements: tuple[Literal["pre", "post"], ...] = ("pre", "post")
    runs: dict[str, Run] = {
        name: run(name, options.steps, options.layers, options.learning_rate) for name in placements
    }
    print("layer   gradient norm at the start: pre       post")
    for layer, (pre, post) in enumerate(zip(*(r.gradients for r in runs.values()), strict=True), start=1):
        print(f"{layer:5d}   {pre:31.4f}   {post:8.4f}")
    print(" step   training loss (mean of ten): pre       post")
    for end in sorted({max(options.steps * part // 10, 1) for part in range(1, 11)}):
        pre, post = (sum(r.losses[max(end - 10, 0) : end]) / min(end, 10) for r in runs.values())
        print(f"{end:5d}   {pre:32.3f}   {post:8.3f}")
    print(f"the words' entropy: {entropy():.3f}")
    plot(runs, options.plot)
    print(f"plot: {options.plot}")


if __name__ == "__main__":
    main()
