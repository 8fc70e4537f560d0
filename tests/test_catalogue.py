"""The catalogue is complete: every check has its case, its text and its reasons, and two files are a check."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from textwrap import dedent

import pytest
from torch import nn

import encdoctor.cases
import encdoctor.checks
from encdoctor import limits, registry, runner
from encdoctor.cli import _broken
from encdoctor.model import Severity
from encdoctor.options import Options
from encdoctor.registry import SECTIONS, Check
from encdoctor.target import from_object

CHECKS = registry.discover()
CASES = Path(encdoctor.cases.__file__).parent
CHECK_FILES = sorted(
    path for path in Path(encdoctor.checks.__file__).parent.glob("*/*.py") if path.name != "__init__.py"
)
CASE_FILES = sorted(path for path in CASES.glob("*/*.py") if path.name != "__init__.py")
each_check = pytest.mark.parametrize("check", CHECKS.values(), ids=lambda check: check.rule.slug)


def mirrored(path: Path) -> str:
    """family/file, the same for a check and its case."""
    return f"{path.parent.name}/{path.name}"


def home(check: Check) -> str:
    return f"{check.family}/{check.rule.slug.replace('-', '_')}.py"


def test_every_file_of_a_check_is_discovered() -> None:
    assert sorted(home(check) for check in CHECKS.values()) == [mirrored(path) for path in CHECK_FILES]


def test_every_case_file_belongs_to_a_check() -> None:
    assert {mirrored(path) for path in CASE_FILES} <= {mirrored(path) for path in CHECK_FILES}


@each_check
def test_has_cases(check: Check) -> None:
    path = CASES / home(check)
    assert path.is_file(), f"{check.rule.slug} has no case: write {path.relative_to(CASES)}"
    names = [node.name for node in ast.parse(path.read_bytes()).body if isinstance(node, ast.ClassDef)]
    broken, sound = (sum(name.startswith(kind) for name in names) for kind in ("Broken_", "Sound_"))
    is_note = check.rule.severity is Severity.NOTE
    assert (broken >= 1 and sound >= 1) if is_note else (broken >= 3 and sound >= 2), (broken, sound)


@each_check
def test_every_broken_case_says_where(check: Check) -> None:
    source = (CASES / home(check)).read_text(encoding="utf-8")
    for block in re.split(r"^(?=class )", source, flags=re.MULTILINE):
        if block.startswith("class Broken_"):
            assert re.search(r"# <- (here|in \S+)$", block, re.MULTILINE), block.splitlines()[0]


@each_check
def test_text_is_complete(check: Check) -> None:
    assert check.text.summary.endswith("."), check.text.summary
    assert list(check.text.sections) == list(SECTIONS.values())
    assert all(len(text) > 10 for text in check.text.sections.values()), check.text.sections


@each_check
def test_name_says_what_is_wrong(check: Check) -> None:
    assert re.fullmatch(r"[A-Z]{3}\d{3}", check.rule.code)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", check.rule.slug)
    assert not {"check", "test", "valid", "correct", "good"} & set(check.rule.slug.split("-"))


def test_codes_and_slugs_are_unique() -> None:
    rules = [import_module(check.function.__module__).RULE for check in CHECKS.values()]
    assert len({rule.code for rule in rules}) == len({rule.slug for rule in rules}) == len(CHECK_FILES)


def test_a_family_has_one_prefix() -> None:
    prefixes: dict[str, set[str]] = {}
    for check in CHECKS.values():
        prefixes.setdefault(check.family, set()).add(check.rule.code[:3])
    assert all(len(found) == 1 for found in prefixes.values()), prefixes


@pytest.mark.parametrize("path", [*CHECK_FILES, Path(limits.__file__)], ids=lambda path: path.stem)
def test_every_limit_gives_its_reason(path: Path) -> None:
    for call in limit_calls(path):
        reason = next((k.value for k in call.keywords if k.arg == "because"), None)
        reason = reason or (call.args[2] if len(call.args) > 2 else None)
        assert reason is not None, f"line {call.lineno} gives no reason"
        assert not (isinstance(reason, ast.Constant) and len(str(reason.value)) < 10), f"line {call.lineno}"


def limit_calls(path: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Limit":
            yield node


# ---- two files are a check -------------------------------------------------------------------------------

CHECK = '''
"""The encoder has a part called oddity.

What it looks at
    Names of parts.

Why it matters
    It does not.

What you see
    Nothing at all.

How to fix it
    Call it otherwise.

When it does not apply
    Nobody is odd.

Where it points
    The class.

References
    None needed.
"""

from encdoctor.evidence.gradients import Gradients
from encdoctor.model import Limit, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("ODD001", "oddly-named", Severity.WARNING)
NONE = Limit(0, "odd names", "this check is made up")


def check(gradients: Gradients) -> Verdict:
    odd = [p.name for p in gradients.parameters if "oddity" in p.name]
    if not odd:
        return Passed()
    return Suspect(RULE, "odd", "named so", float(len(odd)), NONE, (), "rename it")
'''

CASE = """
from torch import nn

from encdoctor.cases.bases import FusedEncoder


class Broken_odd(FusedEncoder):
    def make_parts(self):
        super().make_parts()
        self.oddity, self.stem = self.stem, nn.Identity()

    def embed(self, frames):
        return super().embed(self.oddity(frames))


class Sound_plain(FusedEncoder):
    pass
"""


@pytest.fixture
def two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A check and its case in folders of their own that stand beside the built-in ones."""
    for package, text in ((encdoctor.checks, CHECK), (encdoctor.cases, CASE)):
        family = tmp_path / package.__name__ / "oddities"
        family.mkdir(parents=True)
        (family / "__init__.py").touch()
        (family / "oddly_named.py").write_text(dedent(text))
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(family.parent)])
    registry.catalogue.cache_clear()
    yield
    registry.catalogue.cache_clear()


@pytest.mark.usefixtures("two_files")
def test_two_files_are_a_check() -> None:
    found = registry.discover()
    assert set(found) - set(CHECKS) == {"ODD001"}
    made_up = registry.select(found, ["oddities"], [])
    assert list(made_up) == ["ODD001"]

    target = _broken(made_up["ODD001"])
    assert target == "encdoctor.cases.oddities.oddly_named:Broken_odd"
    module = import_module(target.partition(":")[0])
    assert slugs(module.Broken_odd, made_up) == ["oddly-named"]
    assert slugs(module.Sound_plain, made_up) == []


def slugs(cls: type[nn.Module], checks: dict[str, Check]) -> list[str]:
    report = runner.examine(from_object(cls, {}, cls.__name__, Path.cwd()), Options(), checks)
    return [finding.slug for finding in report.findings]
