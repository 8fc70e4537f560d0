"""Third-party encoders that are known to be healthy: none may get an error or a warning.

    python benchmarks/zoo.py FOLDER              all
    python benchmarks/zoo.py FOLDER bert vit     only these
    python benchmarks/zoo.py FOLDER --json zoo.json

FOLDER/dev.py has one factory without arguments for each encoder, and CALLS, which says how each is called: it is held
against what was inferred, and never used for inferring it.

The packages that the factories import have to be installed; an encoder whose package is not is listed as missing.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from encdoctor import registry, runner
from encdoctor.model import CannotJudge, Severity
from encdoctor.options import Options
from encdoctor.target import load

# What a key may call by another name: embeddings and features are both floats of a known width.
FLOATS = {"embeddings", "features"}


@dataclass
class Row:
    """What became of one encoder. `wrong` names the parts of the contract that the key contradicts."""

    name: str
    contract: str = ""
    wrong: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    undecided: int = 0
    seconds: float = 0.0
    failure: str = ""


def main() -> None:
    """Prints a row an encoder and the totals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = options.folder.resolve()
    sys.path.insert(0, str(folder))
    tree = ast.parse((folder / "dev.py").read_text(encoding="utf-8"))
    names = options.names or [
        node.name for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    ]
    calls: dict[str, dict[str, Any]] = importlib.import_module("dev").CALLS
    rows = [_examine(folder, name, calls.get(name, {})) for name in names]
    _show(rows)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")


def _examine(folder: Path, name: str, call: dict[str, Any]) -> Row:
    started = time.perf_counter()
    try:
        loaded = load(f"dev.py:{name}", {}, folder)
        report = runner.examine(loaded, Options(), registry.discover())
    except CannotJudge as reason:
        return Row(name, failure=str(reason), seconds=time.perf_counter() - started)
    roots = report.roots()
    return Row(
        name,
        contract=str(report.contract.get("line", "")),
        wrong=tuple(_contradicted(report.contract, call)),
        findings=tuple(f.slug for f in roots if f.severity is not Severity.NOTE),
        notes=tuple(f.slug for f in roots if f.severity is Severity.NOTE),
        undecided=sum(result.outcome.value in ("undecided", "errored") for result in report.results),
        seconds=time.perf_counter() - started,
    )


def _contradicted(contract: dict[str, Any], call: dict[str, Any]) -> list[str]:
    """The parts of the contract that are not as the key says."""
    if not call:
        return []
    mask = contract.get("mask") or {}
    told = mask.get("argument") if mask.get("true") != "pad_id" else None
    wrong = []
    if contract.get("input") != call.get("input") and {contract.get("input"), call.get("input")} != FLOATS:
        wrong.append("input")
    if contract.get("argument") != call.get("arg"):
        wrong.append("argument")
    if told != call.get("mask"):
        wrong.append("mask argument")
    elif told and mask.get("true") != call.get("mask_true"):
        wrong.append("mask meaning")
    if bool(contract.get("batch_first")) != bool(call.get("batch_first", True)):
        wrong.append("batch axis")
    return wrong


def _show(rows: list[Row]) -> None:
    table = Table("encoder", "contract", "wrong", "errors and warnings", "notes", "undecided", "seconds")
    for row in rows:
        said = ", ".join(row.findings) or row.failure
        wrong, notes = ", ".join(row.wrong), ", ".join(row.notes)
        table.add_row(row.name, row.contract, wrong, said, notes, str(row.undecided), f"{row.seconds:.1f}")
    console = Console(width=200)
    console.print(table)
    judged = [row for row in rows if not row.failure]
    console.print(
        f"{len(judged)} of {len(rows)} judged, {sum(bool(r.findings) for r in judged)} with an error or warning, "
        f"{sum(not r.wrong for r in judged)} with the contract right"
    )


if __name__ == "__main__":
    main()
