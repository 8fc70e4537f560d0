"""Every case is judged as it says: a `Broken_*` by its own rule and no other, a `Sound_*` by none.

A mark in the source says where the finding has to point: `# <- here` at the line, or `# <- in layers.*` at the module.
"""

from __future__ import annotations

import copy
import inspect
import json
import random
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from importlib import import_module, resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch
from torch import nn

from encdoctor import registry, runner
from encdoctor.api import assemble
from encdoctor.cases import bases
from encdoctor.isolation import Judged
from encdoctor.model import Finding, Severity, TargetReport
from encdoctor.options import Options
from encdoctor.registry import Check
from encdoctor.reports.json import dump
from encdoctor.target import from_object

NEAR = 3  # lines
CHECKS = registry.discover()
SCHEMA = json.loads(resources.files("encdoctor.reports").joinpath("schema.json").read_text(encoding="utf-8"))
BASES = [cls for name, cls in vars(bases).items() if name.endswith("Encoder")]


def cases(kind: str) -> Iterator[Any]:
    """(the check, the class) of every case of that kind; test_catalogue.py says which check has none."""
    for check in CHECKS.values():
        name = f"encdoctor.cases.{check.family}.{check.rule.slug.replace('-', '_')}"
        if find_spec(name) is None:
            continue
        module = import_module(name)
        for name, cls in vars(module).items():
            if name.startswith(kind) and cls.__module__ == module.__name__:
                yield pytest.param(check, cls, id=f"{check.rule.slug}-{name}")


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("seed"))


def examined(cls: type[nn.Module], fast: bool, seed: int) -> TargetReport:
    torch.manual_seed(seed)
    loaded = from_object(cls, {}, f"{cls.__module__}:{cls.__qualname__}", Path.cwd())
    return runner.examine(loaded, Options(fast=fast, seed=seed), CHECKS)


def loud(report: TargetReport) -> list[Finding]:
    """Unexplained errors and warnings."""
    return [finding for finding in report.roots() if finding.severity is not Severity.NOTE]


def points_at(cls: type[nn.Module], finding: Finding) -> bool:
    """Whether some place of the finding is one that the case marks."""
    lines, first = inspect.getsourcelines(cls)
    here = [first + number for number, line in enumerate(lines) if line.rstrip().endswith("# <- here")]
    modules = re.findall(r"# <- in (\S+)$", "".join(lines), re.MULTILINE)
    assert here or modules, "the case has no mark"
    file = Path(inspect.getfile(cls)).parts[-2:]
    return any(
        (Path(where.file).parts[-2:] == file and any(abs(where.line - line) <= NEAR for line in here))
        or any(fnmatch(where.module, module) for module in modules)
        for where in finding.where
    )


@pytest.mark.parametrize(("check", "cls"), cases("Broken_"))
def test_broken(check: Check, cls: type[nn.Module], seed: int) -> None:
    report = examined(cls, check.family != "learning", seed)
    found = report.roots() if check.rule.severity is Severity.NOTE else loud(report)
    assert [f.slug for f in found if f.severity is not Severity.NOTE or f.slug == check.rule.slug] == [
        check.rule.slug
    ], told(report)
    own = next(f for f in found if f.slug == check.rule.slug)
    assert points_at(cls, own), [(where.module, where.file, where.line) for where in own.where]
    assert_saved(report)


@pytest.mark.parametrize(("check", "cls"), cases("Sound_"))
def test_sound(check: Check, cls: type[nn.Module], seed: int) -> None:
    report = examined(cls, check.family != "learning", seed)
    assert not loud(report), told(report)
    assert_saved(report)


@pytest.mark.parametrize("cls", BASES)
def test_base(cls: type[nn.Module], seed: int) -> None:
    report = examined(cls, False, seed)
    assert not loud(report), told(report)
    outcomes = {result.slug: result.outcome.value for result in report.results}
    assert not {"failed", "errored", "skipped"} & set(outcomes.values()), outcomes


@pytest.mark.parametrize("cls", BASES)
def test_leaves_an_instance_as_it_was(cls: type[nn.Module]) -> None:
    model = used(cls)
    before = state(model)
    report = runner.examine(from_object(model, {}, cls.__name__, Path.cwd()), Options(fast=True), CHECKS)
    assert report.results
    assert_same(before, state(model))


def told(report: TargetReport) -> list[str]:
    """What a failing test shows."""
    return [f"{f.severity} {f.slug} ({f.id} by {f.explained_by}): {f.message}" for f in report.findings] + [
        f"{r.slug} {r.outcome}: {r.reason}" for r in report.results if r.outcome in ("undecided", "errored")
    ]


def assert_saved(report: TargetReport) -> None:
    saved = json.loads(dump(assemble([Judged(report)], seed=0, device="cpu", seconds=0.0)))
    jsonschema.validate(saved, SCHEMA)


# ---- the state of a model that somebody uses -------------------------------------------------------------


def used(cls: type[nn.Module]) -> nn.Module:
    """A model in the middle of its life: gradients, hooks, parts frozen and parts in eval mode."""
    model = cls()
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    first = next(model.parameters())
    first.requires_grad_(False)
    first.grad = None
    modules = list(model.modules())
    modules[-1].eval()
    modules[1].register_forward_hook(lambda module, given, output: None)
    modules[2].register_full_backward_hook(lambda module, given, output: None)
    return model


def state(model: nn.Module) -> dict[str, Any]:
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {
        "values": {name: tensor.detach().clone() for name, tensor in tensors.items()},
        "gradients": {name: copy.deepcopy(tensor.grad) for name, tensor in tensors.items()},
        "wanting": {name: tensor.requires_grad for name, tensor in tensors.items()},
        "identities": {name: id(tensor) for name, tensor in tensors.items()},
        "versions": {name: tensor._version for name, tensor in tensors.items()},
        "modes": {name: module.training for name, module in model.named_modules()},
        "attributes": {name: sorted(vars(module)) for name, module in model.named_modules()},
        "hooks": {
            f"{name}.{kind}": list(hooks)
            for name, module in model.named_modules()
            for kind, hooks in vars(module).items()
            if kind.endswith("hooks")
        },
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
        "torch": torch.get_rng_state(),
        "switches": (
            torch.is_grad_enabled(),
            torch.get_default_dtype(),
            torch.get_num_threads(),
            torch.is_anomaly_enabled(),
            torch.are_deterministic_algorithms_enabled(),
            torch.is_autocast_enabled("cpu"),
            torch.backends.mha.get_fastpath_enabled(),
            *(getattr(torch.backends.cuda, f"{name}_sdp_enabled")() for name in ("math", "flash", "mem_efficient")),
        ),
    }


def assert_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    np.testing.assert_equal(plain(after), plain(before))


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.numpy()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value
