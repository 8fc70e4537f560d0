"""encdoctor from Python: `encdoctor.check(MyEncoder)`, in this process, and what it returns."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import encdoctor
from encdoctor.isolation import Judged, examine_loaded
from encdoctor.model import CannotJudge, Finding, Run
from encdoctor.options import TARGET_SETTINGS, Options, checked_settings, options_from

if TYPE_CHECKING:
    from encdoctor.target import Loaded


@dataclass(frozen=True)
class Contract:
    """How the encoder is called, where that should not be inferred; None means it should.

    `mask` and `lengths` name arguments of forward; `mask_true` is what True means there: "keep", "drop" or
    "additive"; `input` is "ids", "embeddings", "features", "pixels" or "audio".
    """

    input: str | None = None
    mask: str | None = None
    mask_true: str | None = None
    lengths: str | None = None
    pad_id: int | None = None
    batch_first: bool | None = None
    output: str | None = None

    def settings(self) -> dict[str, Any]:
        """The same under the names of the command line's options."""
        names = {"mask": "mask-arg", "lengths": "lengths-arg"}
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return {names.get(name, name.replace("_", "-")): value for name, value in given.items()}


class Report:
    """What was found on one target. Print it, show it in a notebook, save it, or look into `findings`."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @property
    def findings(self) -> list[Finding]:
        """All findings, also those that another one explains."""
        return [finding for report in self.run.reports for finding in report.findings]

    def roots(self) -> list[Finding]:
        """The findings that nothing else explains, the most severe first."""
        return [finding for report in self.run.reports for finding in report.roots()]

    def save(self, path: str | Path) -> None:
        """Writes the report as JSON; `encdoctor render` shows it again, where torch is not installed too."""
        from encdoctor.reports import json

        Path(path).write_text(json.dump(self.run), encoding="utf-8")

    def html(self, path: str | Path) -> None:
        """Writes the report as one page that needs nothing else."""
        Path(path).write_text(self._repr_html_(), encoding="utf-8")

    def __str__(self) -> str:
        from io import StringIO

        from rich.console import Console

        from encdoctor.reports import console

        page = StringIO()
        console.render(self.run, Console(file=page, width=110, no_color=True))
        return page.getvalue()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from encdoctor.reports import html

        return html.render(self.run)


def check(target: Any, *, contract: Contract | None = None, **options: Any) -> Report:
    """Examines a class, an instance or a factory (or a target's text) in this process.

    `options` are those of `encdoctor check`, with underscores: `fast=True`, `ignore=["MSK002"]`, `arg={…}`.
    Raises `CannotJudge` where the command line would exit with 2.
    """
    given = {name.replace("_", "-"): _listed(value) for name, value in options.items()}
    settings = {**(contract.settings() if contract else {}), **given}
    chosen = options_from(checked_settings(settings, TARGET_SETTINGS, "encdoctor.check"))
    started = time.monotonic()
    with _random_state_kept(chosen.seed):
        report = examine_loaded(_loaded(target, chosen), chosen)
    if report.failure is not None:
        raise CannotJudge(report.failure)
    return Report(assemble([Judged(report)], chosen.seed, chosen.device, time.monotonic() - started))


def assemble(judged: Sequence[Judged], seed: int, device: str, seconds: float, complete: bool = True) -> Run:
    """The reports, with the rules they speak of and what they were made with."""
    from encdoctor import registry

    environment = {
        "python": platform.python_version(),
        "torch": _torch_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "device": device,
        "seed": seed,
    }
    return Run(
        version=encdoctor.__version__,
        environment=environment,
        rules={code: check.text for code, check in registry.discover().items()},
        reports=[one.report for one in judged],
        seconds=seconds,
        complete=complete and all(one.complete for one in judged),
    )


def _torch_version() -> str:
    """Read from the installed files: the process that writes the report need not have loaded torch."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""


def _loaded(target: Any, options: Options) -> Loaded:
    from encdoctor.target import from_object, load
    from encdoctor.weights import with_weights

    if isinstance(target, str):
        loaded = load(target, options.arguments, Path.cwd())
    else:
        name = getattr(target, "__qualname__", type(target).__qualname__)
        loaded = from_object(target, options.arguments, name, Path.cwd())
    return with_weights(loaded, Path(options.weights)) if options.weights else loaded


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@contextmanager
def _random_state_kept(seed: int) -> Iterator[None]:
    """Seeds the run, and gives the caller's random numbers back."""
    import random

    import torch

    before = random.getstate()
    with torch.random.fork_rng(devices=[]):
        random.seed(seed)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(before)
