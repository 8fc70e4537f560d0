"""The command line, the Python door, and the catalogue behind both."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import encdoctor
from encdoctor import cli, isolation, registry
from encdoctor.evidence import influence
from encdoctor.model import CannotJudge, Passed, Rule, Severity
from encdoctor.options import UsageError
from encdoctor.registry import Check, parse_docstring

HERE = Path(__file__).parent
TARGETS = HERE / "targets"

MODELS = """
from misbehaving import Calm

class Fine(Calm): pass
class Wrong(Calm): stub = "error"
class Noted(Calm): stub = "note"
class Refused(Calm): stub = "refused"
class Ours(Calm): stub = "ours"

class Sized(Calm):
    def __init__(self, width, activation="relu"):
        super().__init__()
        assert (width, activation) == (4, "gelu")
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with models, and the stub as the runner of this process."""
    path = list(sys.path)
    monkeypatch.syspath_prepend(TARGETS)
    stub = __import__("stub_runner")
    monkeypatch.setitem(sys.modules, "encdoctor.runner", stub)
    monkeypatch.setattr(encdoctor, "runner", stub, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.py").write_text(MODELS)
    yield tmp_path
    sys.path[:] = path


def check(*arguments: str) -> int:
    return cli.run(["check", "--no-isolate", *arguments])


class TestExitCodes:
    @pytest.mark.parametrize(
        ("names", "code"),
        [
            (["Fine"], 0),
            (["Noted"], 0),
            (["Wrong"], 1),
            (["Wrong", "Refused"], 2),
            (["Missing"], 2),
            (["Wrong", "Ours", "Refused"], 3),
        ],
    )
    def test_the_highest_wins(self, project: Path, names: list[str], code: int) -> None:
        assert check(*(f"models.py:{name}" for name in names)) == code

    @pytest.mark.parametrize(
        ("level", "name", "code"),
        [("never", "Wrong", 0), ("error", "Wrong", 1), ("note", "Noted", 1), ("note", "Fine", 0)],
    )
    def test_fail_on(self, project: Path, level: str, name: str, code: int) -> None:
        assert check(f"models.py:{name}", "--fail-on", level) == code

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["check"], "name a target"),
            (["check", "a:B", "--select", "MSK99"], "no rule or family is called `MSK99`"),
            (["check", "a:B", "--severity", "MSK002"], "--severity takes NAME=VALUE"),
            (["check", "a:B", "--severity", "MSK002=fatal"], "must be error, warning or note"),
            (["check", "a:B", "--arg", "width"], "--arg takes NAME=VALUE"),
            (["check", "a:B", "--intent", "causl"], "did you mean `causal`?"),
            (["check", "a:B", "--time-limit", "0"], "above 0"),
            (["check", "a:B", "--json", "-", "--html", "-"], "only one report can go to stdout"),
            (["check", "a:B", "--nonsense"], "No such option"),
            (["explain", "padding-mask-invrted"], "did you mean `padding-mask-inverted`?"),
            (["render", "nowhere.json"], "nowhere.json"),
        ],
    )
    def test_misuse_is_one_sentence(
        self, project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
    ) -> None:
        assert cli.run(arguments) == 2
        captured = capsys.readouterr()
        assert said in captured.err and "Traceback" not in captured.err
        assert captured.out == ""

    def test_our_own_fault_asks_for_a_report(
        self, project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise ZeroDivisionError("inside")

        monkeypatch.setattr(cli, "_jobs", fail)
        assert check("models.py:Fine") == 3
        captured = capsys.readouterr().err
        assert captured == (
            "encdoctor: encdoctor itself failed (ZeroDivisionError: inside): please report it, with what "
            "--debug shows\n"
        )
        assert check("models.py:Fine", "--debug") == 3
        assert "Traceback" in capsys.readouterr().err

    def test_a_traceback_only_with_debug(self, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
        check("models.py:Missing")
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        check("models.py:Missing", "--debug")
        assert "Traceback" in capsys.readouterr().err

    def test_an_interruption_leaves_what_is_done(
        self, project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(jobs: list[isolation.Job], isolate: bool) -> Iterator[isolation.Judged]:
            yield isolation.examine_target(jobs[0].target, jobs[0].options)
            raise KeyboardInterrupt

        monkeypatch.setattr(isolation, "judge", interrupted)
        assert check("models.py:Fine", "models.py:Wrong", "--json", "-") == 130
        captured = capsys.readouterr()
        saved = json.loads(captured.out)
        assert [report["target"] for report in saved["reports"]] == ["models.py:Fine"]
        assert saved["complete"] is False and "interrupted" in captured.err


class TestOutput:
    def test_json_on_stdout_is_json_alone(self, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
        check("models.py:Wrong", "--json", "-", "--seed", "5")
        saved = json.loads(capsys.readouterr().out)
        assert saved["schema"] == "encdoctor/run-1" and saved["environment"]["seed"] == 5
        [report] = saved["reports"]
        assert report["model"]["seed"] == 5 and len(report["findings"]) == 1

    def test_the_same_seed_gives_the_same_bytes(self, project: Path) -> None:
        texts = []
        for name in ("one.json", "two.json"):
            check("models.py:Wrong", "--json", name)
            texts.append([line for line in Path(name).read_text().splitlines() if '"seconds"' not in line])
        assert texts[0] == texts[1]

    def test_files_and_rendering_again(self, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
        check("models.py:Wrong", "--json", "report.json", "--html", "page.html", "--no-color")
        shown = capsys.readouterr().out
        assert cli.run(["render", "report.json", "--no-color"]) == 0
        assert capsys.readouterr().out == shown
        assert cli.run(["render", "report.json", "--html", "again.html", "--json", "again.json"]) == 0
        assert Path("again.json").read_bytes() == Path("report.json").read_bytes()
        assert Path("again.html").read_text() == Path("page.html").read_text()

    def test_a_path_that_cannot_be_written(self, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert check("models.py:Fine", "--json", "nowhere/report.json") == 2
        assert "cannot be written to nowhere/report.json" in capsys.readouterr().err

    def test_deselected_rules_are_said_to_be_skipped(self, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
        check("models.py:Fine", "--select", "padding-mask-inverted", "--json", "-")
        [report] = json.loads(capsys.readouterr().out)["reports"]
        outcomes = {result["rule"]: result["outcome"] for result in report["results"]}
        assert set(outcomes) == set(registry.discover()) and set(outcomes.values()) == {"skipped"}

    def test_inspect_shows_what_was_understood(self, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.run(["inspect", "models.py:Fine", "--no-isolate", "--mask-true", "drop"]) == 0
        shown = capsys.readouterr().out
        assert "class: Fine" in shown and "mask_true: drop" in shown
        assert cli.run(["inspect", "models.py:Refused", "--no-isolate"]) == 2

    def test_a_demonstration_is_the_rules_first_broken_case(
        self, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        case = project / "case.py"
        case.write_text("class Sound_a: ...\nclass Broken_b: ...\nclass Broken_c: ...\n")
        spec = ModuleSpec("case", None, origin=str(case))
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
        found = registry.find(registry.discover(), cli.DEMO_RULE)
        assert cli._broken(found) == "encdoctor.cases.masks.padding_mask_ignored:Broken_b"
        case.write_text("class Sound_a: ...\n")
        with pytest.raises(UsageError, match="there is no demonstration of padding-mask-ignored"):
            cli._broken(found)


class TestOptions:
    def test_constructor_arguments_are_literals_or_words(self, project: Path) -> None:
        assert check("models.py:Sized", "--arg", "width=4", "--arg", "activation=gelu") == 0

    def test_a_target_by_its_name_in_the_configuration(self, project: Path) -> None:
        (project / "encdoctor.toml").write_text(
            'fail-on = "never"\nisolate = false\n[targets.text]\ntarget = "models.py:Wrong"\n'
        )
        assert cli.run(["check", "text"]) == 0
        assert cli.run(["check", "text", "--fail-on", "warning"]) == 1
        assert cli.run(["check"]) == 0

    def test_weights_are_loaded(self, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (project / "plain.py").write_text("from named_encoders import Plain\n")
        torch.save({"state_dict": {"module.inner.weight": torch.ones(2, 2)}}, "half.pt")
        assert check("plain.py:Plain", "--weights", "half.pt", "-q") == 2
        assert "has no `inner.bias`" in " ".join(capsys.readouterr().out.split())
        state = {"module.inner.weight": torch.ones(2, 2), "module.inner.bias": torch.ones(2)}
        torch.save({"state_dict": {**state, "module.head": torch.ones(1)}, "epoch": 3}, "whole.pt")
        assert check("plain.py:Plain", "--weights", "whole.pt", "--json", "-") == 0
        [report] = json.loads(capsys.readouterr().out)["reports"]
        assert report["model"]["notes"] == ["weights of whole.pt, 1 tensors of which the model does not have"]


class TestPython:
    def test_version_is_the_projects(self) -> None:
        project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
        assert encdoctor.__version__ == project["version"]

    def test_check_takes_a_class_and_gives_a_report(self, project: Path) -> None:
        calm = __import__("misbehaving").Calm

        before = torch.random.get_rng_state()
        report = encdoctor.check(
            type("Wrong", (calm,), {"stub": "warning"}),
            contract=encdoctor.Contract(mask="mask", mask_true="keep"),
            ignore=["MSK"],
        )
        assert [finding.severity for finding in report.findings] == [Severity.WARNING]
        assert report.run.reports[0].contract == {"mask_arg": "mask", "mask_true": "keep"}
        assert "is wrong" in str(report) and "<html" in report._repr_html_()
        report.save("report.json")
        assert json.loads(Path("report.json").read_text())["complete"] is True
        assert torch.equal(torch.random.get_rng_state(), before)

    def test_it_raises_the_same_sentences(self, project: Path) -> None:
        with pytest.raises(CannotJudge, match="this is no encoder"):
            encdoctor.check(dict)
        with pytest.raises(CannotJudge, match="there is no option `fats`: did you mean `fast`"):
            encdoctor.check("models.py:Fine", fats=True)
        with pytest.raises(CannotJudge, match="no call binds"):
            encdoctor.check("models.py:Refused")


DOCSTRING = """Something is wrong.

What it looks at
    One thing,
    and another.

How to fix it
    So::

        x = 1

References
    A book.
"""


def decide(influence: influence.PaddingInfluence | None) -> Passed:
    return Passed()


def module(code: str = "XXX001", slug: str = "made-up", function: Callable[..., Any] = decide) -> ModuleType:
    made = ModuleType("made_up", DOCSTRING)
    made.__dict__.update(RULE=Rule(code, slug, Severity.NOTE), check=function)
    return made


class TestRegistry:
    def test_a_docstring_is_taken_apart(self) -> None:
        summary, sections = parse_docstring(DOCSTRING)
        assert summary == "Something is wrong."
        assert sections == {
            "what": "One thing,\nand another.",
            "fix": "So::\n\n    x = 1",
            "references": "A book.",
        }

    def test_every_check_is_found_with_its_family_and_needs(self) -> None:
        checks = registry.discover()
        modules = list((HERE.parent / "checks").glob("*/[!_]*.py"))
        assert len(checks) == len(modules) > 0
        for code, found in checks.items():
            assert code == found.rule.code and found.text.summary and found.needs
        assert list(checks) == sorted(checks)

    def test_what_a_check_needs_is_in_its_annotations(self) -> None:
        assert registry.read_check(module(), "made").needs == {"influence": influence.PaddingInfluence | None}

    @pytest.mark.parametrize(
        ("chosen", "left"),
        [
            ([], ["MSK001", "MSK002", "NUM001"]),
            (["MSK"], ["MSK001", "MSK002"]),
            (["msk002"], ["MSK002"]),
            (["masks"], ["MSK001", "MSK002"]),
            (["slug-num001", "MSK001"], ["MSK001", "NUM001"]),
        ],
    )
    def test_selection(self, chosen: list[str], left: list[str]) -> None:
        assert list(registry.select(self.three(), chosen, [])) == left
        unwanted = registry.select(self.three(), [], chosen)
        assert list(unwanted) == ([code for code in self.three() if code not in left] if chosen else left)

    def test_an_unknown_name_names_the_nearest(self) -> None:
        with pytest.raises(UsageError, match="`MSK01`: did you mean `MSK001`"):
            registry.select(self.three(), ["MSK01"], [])
        with pytest.raises(UsageError, match="`encdoctor rules` lists them all"):
            registry.select(self.three(), [], ["zzzzzzzz"])

    def test_a_faulty_check_of_another_package_is_told_and_left_out(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def unannotated(influence):  # type: ignore[no-untyped-def]
            return Passed()

        monkeypatch.setitem(sys.modules, "good_plugin", module())
        monkeypatch.setitem(sys.modules, "taken_plugin", module("XXX002"))
        monkeypatch.setitem(sys.modules, "vague_plugin", module("XXX003", "vague", unannotated))
        names = ("good_plugin", "taken_plugin", "vague_plugin", "missing_plugin")
        entries = [EntryPoint(name, name, registry.GROUP) for name in names]
        monkeypatch.setattr(registry, "entry_points", lambda group: entries)
        registry.catalogue.cache_clear()
        try:
            assert "XXX001" in registry.discover() and "XXX002" not in registry.discover()
            assert len(registry.faults()) == 3
            assert cli.run(["rules"]) == 0
            captured = capsys.readouterr()
            assert "'missing_plugin' (missing_plugin) is left out: ModuleNotFoundError" in captured.err
            assert "is not annotated with the evidence it needs" in captured.err
            assert "made-up" in captured.out
        finally:
            registry.catalogue.cache_clear()

    def three(self) -> dict[str, Check]:
        families = {"MSK001": "masks", "MSK002": "masks", "NUM001": "numerics"}
        return {
            code: registry.read_check(module(code, f"slug-{code.lower()}"), family) for code, family in families.items()
        }


class TestWeight:
    """What must be fast loads nothing heavy."""

    @pytest.mark.parametrize(
        "arguments",
        [
            ["--help"],
            ["check", "--help"],
            ["--version"],
            ["rules"],
            ["rules", "--json"],
            ["explain", "MSK002"],
        ],
    )
    def test_no_torch_for_words(self, arguments: list[str]) -> None:
        code = (
            "import sys; from encdoctor.cli import run; code = run(sys.argv[1:]); "
            "heavy = {'torch', 'pandas', 'matplotlib'} & set(sys.modules); "
            "sys.exit(f'{code} {heavy}' if code or heavy else 0)"
        )
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout

    def test_importing_loads_nothing(self) -> None:
        heavy = "{'torch', 'numpy', 'click', 'rich'}"
        code = f"import sys, encdoctor; sys.exit(str({heavy} & set(sys.modules) or ''))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stderr.strip() == ""

    def test_help_says_that_checking_executes(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.run(["check", "--help"]) == 0
        assert "Checking a file executes it" in " ".join(capsys.readouterr().out.split())
