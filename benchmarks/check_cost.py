"""What a check costs: seconds, forwards and backwards by evidence, on sound encoders of three sizes.

Prints a table, and writes the same as JSON where `--json PATH` says so. Each encoder is examined in this process, after
torch was loaded: what a user waits for besides is the start of Python and torch, 2 to 5 seconds.

    python benchmarks/check_cost.py --size 2x64 --size 6x256 --json check_cost.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

import encdoctor
from encdoctor.reference import Encoder, EncoderConfig

# layers, width, heads
SIZES = {"2x64": (2, 64, 4), "6x256": (6, 256, 8), "12x768": (12, 768, 12)}
MODES = {"default": False, "fast": True}


@dataclass(frozen=True)
class Cost:
    """One examination. `by_evidence` maps evidence to its passes by kind."""

    size: str
    mode: str
    parameters: int
    seconds: float
    seconds_of_one_pass: float
    forwards: int
    backwards: int
    by_evidence: dict[str, dict[str, int]]
    findings: list[str]


def build(size: str) -> nn.Module:
    """The reference encoder in that size, the same each time."""
    layers, width, heads = SIZES[size]
    torch.manual_seed(0)
    return Encoder(
        EncoderConfig(
            vocab_size=1000, d_model=width, num_heads=heads, num_layers=layers, d_ff=4 * width, max_length=128
        )
    )


def one_pass(model: nn.Module) -> float:
    """Seconds of one forward and backward on three sequences of 13, the best of several."""
    best = float("inf")
    ids = torch.randint(1, 1000, (3, 13))
    for _ in range(9):
        started = time.perf_counter()
        model(ids).sum().backward()
        best = min(best, time.perf_counter() - started)
    model.zero_grad(set_to_none=True)
    return best


def measure(size: str, mode: str) -> Cost:
    """Examines one encoder."""
    model = build(size)
    unit = one_pass(model)
    started = time.perf_counter()
    report = encdoctor.check(model, fast=MODES[mode])
    seconds = time.perf_counter() - started
    cost = report.run.reports[0].cost
    return Cost(
        size=size,
        mode=mode,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        seconds=round(seconds, 2),
        seconds_of_one_pass=round(unit, 4),
        forwards=cost["forwards"],
        backwards=cost["backwards"],
        by_evidence=nested(cost["by_evidence"]),
        findings=[f"{finding.severity} {finding.rule}" for finding in report.findings],
    )


def nested(passes: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """`{"TinyFit.forward": 60}` as `{"TinyFit": {"forward": 60}}`."""
    found: dict[str, dict[str, int]] = {}
    for name, count in passes.items():
        evidence, _, kind = name.partition(".")
        found.setdefault(evidence, {})[kind] = count
    return found


def table(costs: Sequence[Cost]) -> str:
    """The costs in Markdown: the totals, then the passes by evidence."""
    head = [f"{cost.size} {cost.mode}" for cost in costs]
    rows = [
        ["", *head],
        ["---", *("---:" for _ in costs)],
        ["parameters", *(f"{cost.parameters:,}" for cost in costs)],
        ["seconds", *(f"{cost.seconds:.1f}" for cost in costs)],
        ["as passes of this encoder", *(f"{cost.seconds / cost.seconds_of_one_pass:.0f}" for cost in costs)],
        ["forwards + backwards", *(f"{cost.forwards} + {cost.backwards}" for cost in costs)],
    ]
    for evidence in sorted({evidence for cost in costs for evidence in cost.by_evidence}):
        rows.append([f"· {evidence}", *(passes(cost.by_evidence.get(evidence, {})) for cost in costs)])
    rows.append(["findings", *(", ".join(cost.findings) or "none" for cost in costs)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def passes(by_kind: Mapping[str, int]) -> str:
    """Traced forwards are forwards."""
    forwards = by_kind.get("forward", 0) + by_kind.get("trace", 0)
    return f"{forwards} + {by_kind.get('backward', 0)}" if by_kind else ""


def main() -> None:
    """Measures what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", action="append", choices=SIZES, help="repeatable; all by default")
    parser.add_argument("--json", type=Path, metavar="PATH")
    asked = parser.parse_args()
    encdoctor.check(build("2x64"), fast=True)  # what is loaded late is loaded before anything is timed
    costs = [measure(size, mode) for size in asked.size or SIZES for mode in MODES]
    machine = {
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "platform": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "encdoctor": encdoctor.__version__,
    }
    print(table(costs))
    print("\n" + " · ".join(f"{name} {value}" for name, value in machine.items()))
    if asked.json:
        text = json.dumps({"machine": machine, "costs": [asdict(cost) for cost in costs]}, indent=1)
        asked.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
