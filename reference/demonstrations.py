"""Three trainings on real data that is already there, each in minutes on a CPU.

- ``digits``: a ViT classifier on scikit-learn's handwritten digits
- ``mlm``: a masked language model on Python's own documentation, ``pydoc_data.topics``
- ``contrastive``: an encoder that tells passages of that text apart

Run ``python -m encdoctor.reference.demonstrations NAME [--steps N] [--plot FILE]``.
"""

import argparse
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from encdoctor.reference.config import EncoderConfig
from encdoctor.reference.encoder import Encoder
from encdoctor.reference.heads import (
    ContrastiveEncoder,
    MaskedLanguageModel,
    SequenceClassifier,
    contrastive_loss,
    hide_tokens,
)
from encdoctor.reference.training import Batch, Trainer, TrainingConfig, classification_loss, generator
from encdoctor.reference.vision import PatchEmbedding

PAD, UNKNOWN, MASK = 0, 1, 2  # the ids before the words


@dataclass
class Demonstration:
    """A training to run, with the accuracy that it is about and what to compare that with."""

    trainer: Trainer
    accuracy: Callable[[], float]
    baseline: float
    accuracies: list[tuple[int, float]] = field(default_factory=list)

    def run(self, progress: bool = True, parts: int = 10) -> None:
        """Trains, and measures the accuracy on held-out data ``parts`` times on the way."""
        steps = self.trainer.config.steps
        for part in range(1, parts + 1):
            end = steps * part // parts
            losses = [step.loss for step in self.trainer.run(until=end, progress=progress)]
            recent = losses[-max(steps // parts, 1) :]
            self.accuracies.append((end, self.accuracy()))
            print(
                f"step {end:5d}   loss {sum(recent) / len(recent):.3f}   held-out accuracy "
                f"{self.accuracies[-1][1]:.3f}   (baseline {self.baseline:.3f})"
            )

    def plot(self, path: str) -> None:
        """Saves the loss and the accuracy over the steps."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 3.5), layout="constrained")
        left, right = figure.subplots(1, 2)
        left.plot([step.loss for step in self.trainer.history], linewidth=0.8)
        left.set(xlabel="step", ylabel="training loss")
        right.plot(*zip(*self.accuracies, strict=True), marker="o", label="encoder")
        right.axhline(self.baseline, color="gray", linestyle="--", label="baseline")
        right.set(xlabel="step", ylabel="held-out accuracy", ylim=(0, 1))
        right.legend()
        figure.savefig(path)


@torch.no_grad()
def evaluated(model: nn.Module, *inputs: Tensor) -> Tensor:
    """The model's output in eval mode."""
    output: Tensor = model.eval()(*inputs)
    return output


def digits(steps: int = 1000, seed: int = 0) -> Demonstration:
    """1 797 images of 8 × 8, a fifth of them held out; patches of 2 × 2. Baseline: guessing."""
    from sklearn.datasets import load_digits

    torch.manual_seed(seed)
    data = load_digits()
    order = torch.randperm(len(data.target), generator=generator(seed, 0))
    pixels = torch.tensor(data.images, dtype=torch.float32)[order, None] / 8 - 1  # (samples, 1, 8, 8) in [−1, 1]
    labels = torch.tensor(data.target)[order]
    held_out = len(labels) // 5
    patches = PatchEmbedding(image_size=8, patch_size=2, d_model=64, channels=1)
    config = EncoderConfig(
        vocab_size=None, d_model=64, num_heads=4, num_layers=4, d_ff=128, activation="gelu",
        position="learned", max_length=patches.length, dropout=0.0, attention_dropout=0.0, drop_path=0.1,
    )  # fmt: skip
    model = SequenceClassifier(Encoder(config, patches), num_classes=10, pooling="cls")

    def batch(index: int) -> Batch:
        chosen = torch.randint(held_out, len(labels), (64,), generator=generator(seed + 1, index))
        return pixels[chosen], labels[chosen]

    def accuracy() -> float:
        predicted = evaluated(model, pixels[:held_out]).argmax(-1)
        return (predicted == labels[:held_out]).float().mean().item()

    training = TrainingConfig(steps=steps, warmup=steps // 10, learning_rate=2e-3, weight_decay=0.05)
    return Demonstration(Trainer(model, classification_loss(0.1), batch, training), accuracy, baseline=0.1)


def documentation(vocab_size: int, length: int) -> tuple[Tensor, Tensor]:
    """Python's documentation as (passages, length) word ids, in order, and the (V,) words' frequencies."""
    from pydoc_data.topics import topics

    documents = [re.findall(r"\w+|[^\w\s]", topics[name].lower()) for name in sorted(topics)]
    counts = Counter(word for document in documents for word in document)
    ids = {word: i for i, (word, _) in enumerate(counts.most_common(vocab_size - 3), start=3)}
    words = torch.tensor([ids.get(word, UNKNOWN) for document in documents for word in document])
    passages = words[: len(words) // length * length].view(-1, length)
    return passages, torch.bincount(words, minlength=vocab_size) / len(words)


def mlm(steps: int = 1000, seed: int = 0) -> Demonstration:
    """Passages of 64 words, every tenth held out. Baseline: always the most frequent word."""
    torch.manual_seed(seed)
    vocab_size = 1500
    passages, frequencies = documentation(vocab_size, length=64)
    held = torch.arange(len(passages)) % 10 == 0
    training_passages = passages[~held]
    config = EncoderConfig(
        vocab_size=vocab_size, d_model=128, num_heads=4, num_layers=3, d_ff=512, position="rotary",
        activation="gelu", scale_embedding=False, initialisation="normal",
    )  # fmt: skip
    model = MaskedLanguageModel(Encoder(config))

    def hidden(ids: Tensor, source: torch.Generator) -> Batch:
        mask = torch.ones_like(ids, dtype=torch.bool)
        corrupted, labels = hide_tokens(ids, mask, MASK, vocab_size, generator=source)
        return corrupted, mask, labels

    def batch(index: int) -> Batch:
        source = generator(seed + 1, index)
        chosen = torch.randint(len(training_passages), (32,), generator=source)
        return hidden(training_passages[chosen], source)

    def accuracy() -> float:
        ids, mask, labels = hidden(passages[held], generator(seed + 2, 0))
        asked = labels >= 0
        return (evaluated(model, ids, mask).argmax(-1) == labels)[asked].float().mean().item()

    training = TrainingConfig(steps=steps, warmup=steps // 10, learning_rate=2e-3)
    trainer = Trainer(model, classification_loss(), batch, training)
    return Demonstration(trainer, accuracy, baseline=frequencies.max().item())


def contrastive(steps: int = 500, seed: int = 0) -> Demonstration:
    """Two cuts of one passage of 128 words must find each other; every tenth passage is held out.

    Accuracy: how often a held-out cut is nearest to its own partner. Baseline: the untrained encoder's.
    """
    torch.manual_seed(seed)
    vocab_size = 1500
    passages, _ = documentation(vocab_size, length=128)
    held = torch.arange(len(passages)) % 10 == 0
    config = EncoderConfig(vocab_size=vocab_size, d_model=64, num_heads=4, num_layers=2, d_ff=256, activation="gelu")
    model = ContrastiveEncoder(Encoder(config))

    def cut(ids: Tensor, source: torch.Generator) -> tuple[Tensor, Tensor]:
        """(B, 128) → (B, 48) ids from one place, padded to between 24 and 48, with their mask."""
        start = int(torch.randint(ids.shape[1] - 48 + 1, (), generator=source))
        lengths = torch.randint(24, 49, (len(ids), 1), generator=source)
        mask = torch.arange(48) < lengths
        return ids[:, start : start + 48].masked_fill(~mask, PAD), mask

    def batch(index: int) -> Batch:
        source = generator(seed + 1, index)
        chosen = torch.randperm(int((~held).sum()), generator=source)[:64]
        views = passages[~held][chosen]
        return *cut(views, source), *cut(views, source)

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        first_ids, first_mask, second_ids, second_mask = batch
        return contrastive_loss(model(first_ids, first_mask), model(second_ids, second_mask))

    def accuracy() -> float:
        source = generator(seed + 2, 0)
        first, second = (evaluated(model, *cut(passages[held], source)) for _ in range(2))
        return ((first @ second.T).argmax(-1) == torch.arange(len(first))).float().mean().item()

    training = TrainingConfig(steps=steps, warmup=steps // 10, learning_rate=1e-3)
    return Demonstration(Trainer(model, loss, batch, training), accuracy, baseline=accuracy())


DEMONSTRATIONS: dict[str, Callable[..., Demonstration]] = {
    "digits": digits,
    "mlm": mlm,
    "contrastive": contrastive,
}


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m encdoctor.reference.demonstrations")
    parser.add_argument("name", choices=list(DEMONSTRATIONS))
    parser.add_argument("--steps", type=int)
    parser.add_argument("--plot", metavar="FILE", help="save loss and accuracy as an image")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # faster than more for models this small, and repeatable
    demonstration = DEMONSTRATIONS[options.name](**({"steps": options.steps} if options.steps else {}))
    demonstration.run()
    if options.plot:
        demonstration.plot(options.plot)


if __name__ == "__main__":
    main()
