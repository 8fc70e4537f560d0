"""The reference encoder against torch's and transformers', at equal weights, interleaved in one process.

For each size, length, padding and mode, every contender runs once a round, in an order that turns from round
to round, so that what disturbs the machine disturbs all alike. The ratio is that of the round: the fastest
other implementation's median time is found first, and each round gives that one's time divided by ours.
Above 1 means that the reference is faster. Dropout is off everywhere, so that all compute the same function;
this is checked before anything is measured.

Contenders: ``torch`` (nn.TransformerEncoder), ``torch fast`` (with its inference fast path and nested
tensors), ``bert`` (transformers' BertModel with sdpa), ``reference`` (with padding: by lengths, packed),
``masked`` (the reference with a mask instead of lengths), and on request ``compiled``.

Run ``python benchmarks/reference_speed.py [--rounds N] [--sizes 2x128,…] [--lengths …] [--compile] [--json F]``
and, for memory, ``python benchmarks/reference_speed.py --memory``.
"""

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from encdoctor.reference import Encoder, EncoderConfig, PackedEncoder

Run = Callable[[], Tensor]
OTHERS = ("torch", "torch fast", "bert")
TOKENS = 2048  # tokens a batch, whatever the length
MEMORY_VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "checkpointing": {"checkpointing": True},
    "explicit": {"attention": "explicit"},
    "explicit, window 64": {"attention": "explicit", "window": 64},
    "explicit, checkpointing": {"attention": "explicit", "checkpointing": True},
}


@dataclass
class Cell:
    """One line of the table: where it was measured, and every contender's seconds, round by round."""

    size: str
    length: int
    padded: bool
    training: bool
    seconds: dict[str, list[float]]

    @property
    def best_other(self) -> str:
        """The fastest other implementation, by its median."""
        return min((n for n in self.seconds if n in OTHERS), key=lambda n: statistics.median(self.seconds[n]))

    def ratios(self, name: str = "reference") -> list[float]:
        """How many times faster ``name`` was than the best other, in each round."""
        pairs = zip(self.seconds[self.best_other], self.seconds[name], strict=True)
        return [other / own for other, own in pairs]


class Models:
    """The contenders at one size, all with the same weights."""

    def __init__(self, layers: int, d_model: int, length: int, compiled: bool) -> None:
        from transformers import BertConfig, BertModel

        torch.manual_seed(0)
        make: Any = BertConfig  # its signature hides the sdpa option from type checkers
        config = make(
            vocab_size=1, hidden_size=d_model, num_hidden_layers=layers, num_attention_heads=d_model // 64,
            intermediate_size=4 * d_model, max_position_embeddings=length, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0, attn_implementation="sdpa",
        )  # fmt: skip
        self.bert = BertModel(config, add_pooling_layer=False).encoder
        layer = nn.TransformerEncoderLayer(
            d_model, d_model // 64, 4 * d_model, 0.0, "gelu", layer_norm_eps=1e-12, batch_first=True
        )
        with warnings.catch_warnings(action="ignore"):
            self.torch = nn.TransformerEncoder(layer, layers)
        for theirs, ours in zip(self.bert.layer, self.torch.layers, strict=True):
            self.copy(theirs, ours)
        self.reference = Encoder.from_torch(self.torch)
        self.packed = PackedEncoder(self.reference)
        self.compiled = torch.compile(self.reference) if compiled else None

    @staticmethod
    @torch.no_grad()
    def copy(bert: Any, layer: Any) -> None:
        """One BERT layer's weights into a torch layer."""
        own = bert.attention.self
        for name in ("weight", "bias"):
            parts = [getattr(part, name) for part in (own.query, own.key, own.value)]
            getattr(layer.self_attn, f"in_proj_{name}").copy_(torch.cat(parts))
            for target, source in (
                (layer.self_attn.out_proj, bert.attention.output.dense),
                (layer.norm1, bert.attention.output.LayerNorm),
                (layer.linear1, bert.intermediate.dense),
                (layer.linear2, bert.output.dense),
                (layer.norm2, bert.output.LayerNorm),
            ):
                getattr(target, name).copy_(getattr(source, name))

    def contenders(self, x: Tensor, lengths: list[int] | None, training: bool) -> dict[str, Run]:
        """What to time: a forward pass, and in training the backward pass too."""
        for model in (self.bert, self.torch, self.reference):
            model.train(training)
        keep = None if lengths is None else torch.arange(x.shape[1]) < torch.tensor(lengths)[:, None]
        hidden = None if keep is None else ~keep
        bert_mask = None if keep is None else keep[:, None, None].expand(-1, 1, x.shape[1], -1)

        def torch_run(fast: bool) -> Tensor:
            torch.backends.mha.set_fastpath_enabled(fast)
            out: Tensor = self.torch(x, src_key_padding_mask=hidden)
            return out

        runs: dict[str, Run] = {
            "torch": lambda: torch_run(False),
            "bert": lambda: self.bert(x, attention_mask=bert_mask).last_hidden_state,
            "reference": lambda: self.reference(inputs_embeds=x),
        }
        if not training:
            runs["torch fast"] = lambda: torch_run(True)
        if lengths is not None:
            runs["reference"] = lambda: self.packed(inputs_embeds=x, lengths=lengths)
            runs["masked"] = lambda: self.reference(inputs_embeds=x, attention_mask=keep)
        if self.compiled is not None:
            compiled = self.compiled
            runs["compiled"] = lambda: compiled(inputs_embeds=x, attention_mask=keep)
        return runs


def timed(run: Run, parameters: list[nn.Parameter], training: bool) -> float:
    """Seconds for one pass."""
    for parameter in parameters:
        parameter.grad = None
    start = time.perf_counter()
    if training:
        torch.autograd.backward(run().sum())
    else:
        with torch.inference_mode():
            run()
    return time.perf_counter() - start


def check_equal(runs: dict[str, Run], lengths: list[int] | None) -> None:
    """All contenders compute the same on real tokens."""
    with torch.no_grad():
        outputs = {name: run() for name, run in runs.items()}
    for name, out in outputs.items():
        for sample, length in enumerate(lengths or [out.shape[1]] * out.shape[0]):
            difference = out[sample, :length] - outputs["torch"][sample, :length]
            if difference.abs().max() > 1e-3:
                raise SystemExit(f"{name} computes something else: off by {difference.abs().max():.1e}")


def cells(sizes: list[tuple[int, int]], lengths: list[int], rounds: int, compiled: bool) -> Iterator[Cell]:
    """Measures every cell."""
    for layers, d_model in sizes:
        for length in lengths:
            models = Models(layers, d_model, length, compiled)
            parameters = [p for m in (models.bert, models.torch, models.reference) for p in m.parameters()]
            batch = max(TOKENS // length, 1)
            x = torch.randn(batch, length, d_model)
            some = torch.randint(math.ceil(length / 2), length + 1, (batch,)).tolist()
            for padded in (False, True):
                for training in (False, True):
                    runs = models.contenders(x, some if padded else None, training)
                    check_equal(runs, some if padded else None)
                    seconds: dict[str, list[float]] = {name: [] for name in runs}
                    names = list(runs)
                    for turn in range(rounds + 1):
                        for name in names[turn % len(names) :] + names[: turn % len(names)]:
                            took = timed(runs[name], parameters, training)
                            if turn:  # the first is the warm-up
                                seconds[name].append(took)
                    yield Cell(f"{layers}x{d_model}", length, padded, training, seconds)


def report(cell: Cell) -> str:
    """One line of the table: medians in milliseconds, and the ratio with its quartiles."""
    ratios = cell.ratios()
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    times = "  ".join(f"{n} {1e3 * statistics.median(s):.2f}" for n, s in sorted(cell.seconds.items()))
    mode = f"{'training' if cell.training else 'inference'}{', padded' if cell.padded else ''}"
    ratio = f"{middle:.3f} [{low:.3f}, {high:.3f}] × {cell.best_other}"
    return f"{cell.size:>7} {cell.length:4d} {mode:18} {ratio:38} ms: {times}"


def summary(measured: list[Cell]) -> str:
    """The geometric mean of the cells' median ratios, for each mode."""
    lines = []
    for padded in (False, True):
        for training in (False, True):
            medians = [statistics.median(c.ratios()) for c in measured if (c.padded, c.training) == (padded, training)]
            if medians:
                mode = f"{'training' if training else 'inference'}{', padded' if padded else ''}"
                lines.append(f"{mode:18} {statistics.geometric_mean(medians):.3f} over {len(medians)} cells")
    return "\n".join(lines)


def memory_of(variant: str, length: int) -> None:
    """Prints this process's growth in MiB over one training step; to be run in a process of its own."""
    config = EncoderConfig(
        vocab_size=None, d_model=256, num_layers=6, d_ff=1024, dropout=0.0, attention_dropout=0.0,
        **MEMORY_VARIANTS[variant],
    )  # fmt: skip
    encoder, x = Encoder(config), torch.randn(1, length, 256)
    encoder(inputs_embeds=x[:, :8]).sum()  # loads what the first call loads
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    torch.autograd.backward(encoder(inputs_embeds=x).sum())
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


def memory(length: int) -> None:
    """Peak memory of a training step, each variant in a fresh process."""
    print(f"peak memory of a training step, 6x256, batch 1, {length} positions")
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}  # freed tensors leave the process at once
    plain: dict[str, float] = {}
    for variant in MEMORY_VARIANTS:
        command = [sys.executable, __file__, "--memory-of", variant, "--memory-length", str(length)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        plain[variant] = float(done.stdout)
        base = plain["explicit" if variant.startswith("explicit") else "plain"]
        print(f"{variant:24} {plain[variant]:8.0f} MiB   {plain[variant] / base:.2f} of the first of its kind")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--sizes", default="2x128,6x512,12x768")
    parser.add_argument("--lengths", default="32,128,512")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", action="store_true", help="a column for the compiled model")
    parser.add_argument("--json", metavar="FILE", help="save every round's seconds")
    parser.add_argument("--memory", action="store_true", help="measure memory instead of time")
    parser.add_argument("--memory-of", choices=list(MEMORY_VARIANTS), help=argparse.SUPPRESS)
    parser.add_argument("--memory-length", type=int, default=2048)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.memory_of:
        return memory_of(options.memory_of, options.memory_length)
    if options.memory:
        return memory(options.memory_length)
    sizes = [(int(n), int(d)) for n, d in (size.split("x") for size in options.sizes.split(","))]
    measured: list[Cell] = []
    lengths = [int(n) for n in options.lengths.split(",")]
    for cell in cells(sizes, lengths, options.rounds, options.compile):
        measured.append(cell)
        print(report(cell), flush=True)
    print(f"geometric means, against the best other implementation\n{summary(measured)}")
    if options.json:
        Path(options.json).write_text(json.dumps([vars(cell) for cell in measured]))
    return None


if __name__ == "__main__":
    main()
