"""How often the right rule speaks, at the right place, and nothing else: on our own cases, and on a folder with a key.

    python benchmarks/accuracy.py                       our own cases (tests/cases)
    python benchmarks/accuracy.py --key FOLDER          FOLDER/key.json, a list of {target, healthy, faults: [{slug,
                                                        also_ok, line, where, level}], also_true}
    python benchmarks/accuracy.py --json accuracy.json  the same as data

Every target is examined in this process, without isolation. A finding counts where it is an error or warning that
nothing explains (or a note, where the key says that a note is enough).
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import json
import os
import pkgutil
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from encdoctor import registry, runner
from encdoctor.model import CannotJudge, Finding, Severity, TargetReport
from encdoctor.options import Options
from encdoctor.target import Loaded, load, origin_of

NEAR = 3  # lines within which a place counts as right


@dataclass(frozen=True)
class Expected:
    """One fault that has to be named. `lines` and `module` say where; empty where the key does not."""

    slug: str
    also_ok: tuple[str, ...] = ()
    lines: tuple[int, ...] = ()
    module: str = ""
    note_is_enough: bool = False


@dataclass(frozen=True)
class Sample:
    """A target with what has to be said of it."""

    name: str
    loaded: Loaded
    faults: tuple[Expected, ...]
    also_true: tuple[str, ...] = ()


@dataclass
class Score:
    """Counts for one rule."""

    faults: int = 0
    named: int = 0
    placeable: int = 0
    placed: int = 0
    extra: int = 0
    missed: list[str] = field(default_factory=list)


def main() -> None:
    """Prints a row a rule and the totals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--key", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    samples = list(_from_key(options.key.resolve()) if options.key else _from_cases())
    scores: dict[str, Score] = defaultdict(Score)
    healthy = false_alarms = 0
    started = time.perf_counter()
    for sample in samples:
        report = _examine(sample)
        if not sample.faults:
            healthy += 1
            false_alarms += bool(_loud(report))
        _count(sample, report, scores)
    _show(scores, len(samples), healthy, false_alarms, time.perf_counter() - started, options.json)


def _from_cases() -> Iterator[Sample]:
    """Broken cases have one fault, the file's rule, marked by line in their source; Sound ones have none.

    Marks by module (`# <- in`) are left to the tests: a place in another file does not count here.
    """
    package = importlib.import_module("encdoctor.cases")
    notes = {c.rule.slug for c in registry.discover().values() if c.rule.severity is Severity.NOTE}
    for info in pkgutil.walk_packages(package.__path__, "encdoctor.cases."):
        module = importlib.import_module(info.name)
        slug = info.name.rsplit(".", 1)[-1].replace("_", "-")
        for name, cls in sorted(vars(module).items()):
            if not name.startswith(("Broken_", "Sound_")) or getattr(cls, "__module__", "") != info.name:
                continue
            torch.manual_seed(0)
            expected = Expected(slug, lines=_marked(module.__file__ or ""), note_is_enough=slug in notes)
            faults = (expected,) if name.startswith("Broken_") else ()
            model = cls()
            yield Sample(f"{info.name}:{name}", Loaded(name, model, origin_of(model), cls), faults)


def _marked(file: str) -> tuple[int, ...]:
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    return tuple(n for n, line in enumerate(lines, 1) if "# <- here" in line)


def _from_key(folder: Path) -> Iterator[Sample]:
    entries = json.loads((folder / "key.json").read_text(encoding="utf-8"))
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    for entry in entries:
        torch.manual_seed(0)
        faults = tuple(_expected(fault) for fault in entry["faults"])
        yield Sample(entry["target"], load(entry["target"], {}, folder), faults, tuple(entry.get("also_true") or ()))


def _expected(fault: dict[str, Any]) -> Expected:
    lines = fault.get("line") or []
    return Expected(
        fault["slug"],
        tuple(fault.get("also_ok") or ()),
        tuple([lines] if isinstance(lines, int) else lines),
        fault.get("where") or "",
        fault.get("level") == "note",
    )


def _examine(sample: Sample) -> TargetReport:
    try:
        return runner.examine(sample.loaded, Options(), registry.discover())
    except CannotJudge as reason:
        print(f"not judged: {sample.name}: {reason}", file=sys.stderr)
        return TargetReport(sample.name, failure=str(reason))


def _loud(report: TargetReport) -> list[Finding]:
    return [finding for finding in report.roots() if finding.severity is not Severity.NOTE]


def _count(sample: Sample, report: TargetReport, scores: dict[str, Score]) -> None:
    allowed = set(sample.also_true)
    for fault in sample.faults:
        score = scores[fault.slug]
        good = {fault.slug, *fault.also_ok}
        allowed |= good
        score.faults += 1
        hits = [f for f in (report.roots() if fault.note_is_enough else _loud(report)) if f.slug in good]
        score.named += bool(hits)
        if not hits:
            score.missed.append(sample.name)
        elif fault.lines or fault.module:
            score.placeable += 1
            score.placed += any(_near(fault, finding) for finding in hits)
    for finding in _loud(report):
        if finding.slug not in allowed:
            scores[finding.slug].extra += 1


def _near(fault: Expected, finding: Finding) -> bool:
    for place in finding.where:
        if any(abs(place.line - line) <= NEAR for line in fault.lines):
            return True
        if fault.module and fnmatch.fnmatch(place.module, fault.module):
            return True
    return False


def _show(
    scores: dict[str, Score], samples: int, healthy: int, false_alarms: int, seconds: float, path: Path | None
) -> None:
    table = Table("rule", "faults", "recall", "precision", "place", "extra")
    total = Score()
    for slug in sorted(scores):
        _add(table, slug, scores[slug])
        for name in ("faults", "named", "placeable", "placed", "extra"):
            setattr(total, name, getattr(total, name) + getattr(scores[slug], name))
    table.add_section()
    _add(table, "all", total)
    console = Console()
    console.print(table)
    console.print(f"{samples} targets in {seconds:.0f} s; false alarms on {false_alarms} of {healthy} healthy ones")
    for slug, score in sorted(scores.items()):
        for name in score.missed:
            console.print(f"missed: {slug} on {name}")
    if path is not None:
        data = {slug: vars(score) for slug, score in sorted(scores.items())}
        path.write_text(json.dumps({"rules": data, "false_alarms": false_alarms, "healthy": healthy}, indent=1) + "\n")


def _add(table: Table, name: str, score: Score) -> None:
    said = score.named + score.extra
    table.add_row(
        name,
        str(score.faults),
        f"{score.named / score.faults:.2f}" if score.faults else "-",
        f"{score.named / said:.2f}" if said else "-",
        f"{score.placed / score.placeable:.2f}" if score.placeable else "-",
        str(score.extra),
    )


if __name__ == "__main__":
    main()
