"""Who may import whom. The rooms and what they may import stand below as data; the modules are read, not run.

An import counts as *late* inside a function, where it costs nothing until the function is called, and under
`TYPE_CHECKING`, where it is never run.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = {
    "encdoctor": "encdoctor",
    "encdoctor.checks": "checks",
    "encdoctor.reports": "reports",
    "encdoctor.reference": "reference",
    "encdoctor.cases": "tests/cases",
}


@dataclass(frozen=True)
class Room:
    """Modules that may import the same. Names are prefixes: `encdoctor.model` lets `encdoctor.model.Rule` in.

    The standard library is free to all. `late` may be imported late only; `own` tells whether the modules may import
    each other.
    """

    modules: tuple[str, ...]
    imports: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    own: bool = True


ROOMS = (
    # Words and facts: read where torch is not installed.
    Room(("encdoctor.model", "encdoctor.contract", "encdoctor.signatures"), own=False),
    Room(("encdoctor.limits", "encdoctor.excerpts"), ("encdoctor.model",), own=False),
    Room(("encdoctor.evidence",), ("encdoctor.limits", "encdoctor.model", "numpy")),
    Room(("encdoctor.intent",), ("encdoctor.signatures",), late=("encdoctor.target", "torch.nn")),
    # What is asked for, and what there is to ask.
    Room(("encdoctor.options",), ("encdoctor.contract", "encdoctor.intent", "encdoctor.model")),
    Room(("encdoctor.config",), ("encdoctor.options",)),
    Room(("encdoctor.registry",), ("encdoctor.model", "encdoctor.options")),  # finds the checks; never names one
    # The user's code: named and built, run, examined.
    Room(("encdoctor.target",), ("encdoctor.model",), late=("torch",)),
    Room(("encdoctor.weights",), ("encdoctor.model",), late=("encdoctor.target", "torch", "safetensors")),
    Room(
        ("encdoctor.lab",),
        (
            "encdoctor.evidence",
            "encdoctor.model",
            "encdoctor.contract",
            "encdoctor.intent",
            "encdoctor.limits",
            "encdoctor.signatures",
            "encdoctor.target",
            "numpy",
            "torch",
        ),
    ),
    Room(
        ("encdoctor.runner", "encdoctor.anatomy"),
        (
            "encdoctor.contract",
            "encdoctor.evidence",
            "encdoctor.excerpts",
            "encdoctor.intent",
            "encdoctor.isolation.heartbeat",
            "encdoctor.lab",
            "encdoctor.limits",
            "encdoctor.model",
            "encdoctor.options",
            "encdoctor.registry",
            "encdoctor.target",
        ),
    ),
    # Checks: pure functions of facts. Not even another check.
    Room(
        ("encdoctor.checks",),
        ("encdoctor.contract", "encdoctor.evidence", "encdoctor.intent", "encdoctor.limits", "encdoctor.model"),
        own=False,
    ),
    # Renderers: a saved run is all that they read.
    Room(("encdoctor.reports",), ("encdoctor.model", "rich", "jinja2", "markupsafe", "matplotlib")),
    # Encoders. The reference could be taken out and used alone; cases are read by people who know only PyTorch.
    Room(("encdoctor.reference",), ("torch",), late=("rich", "safetensors", "matplotlib", "sklearn")),
    Room(("encdoctor.cases",), ("torch",)),
    # Doors. Whatever is heavy comes in late.
    Room(
        ("encdoctor.isolation",),
        ("encdoctor.model", "encdoctor.options"),
        late=(
            "encdoctor.registry",
            "encdoctor.reports.json",
            "encdoctor.runner",
            "encdoctor.target",
            "encdoctor.weights",
            "torch",
        ),
    ),
    Room(
        ("encdoctor.api",),
        ("encdoctor.__version__", "encdoctor.isolation", "encdoctor.model", "encdoctor.options"),
        late=("encdoctor.registry", "encdoctor.reports", "encdoctor.target", "encdoctor.weights", "rich", "torch"),
    ),
    Room(
        ("encdoctor.cli",),
        ("encdoctor.__version__", "encdoctor.model", "encdoctor.options", "click"),
        late=(
            "encdoctor.api",
            "encdoctor.config",
            "encdoctor.isolation",
            "encdoctor.registry",
            "encdoctor.reports",
            "rich",
        ),
    ),
    Room(("encdoctor.__main__",), ("encdoctor.cli",)),
    Room(("encdoctor.__init__",), late=("encdoctor.api", "encdoctor.model")),
)


@dataclass(frozen=True)
class Import:
    """One imported name, dotted (`from a import b` is `a.b`), where it stands, and whether it is late."""

    name: str
    line: int
    late: bool


def modules() -> dict[str, Path]:
    """Every module of the package by its full name."""
    return {
        ".".join((package, *path.relative_to(ROOT / folder).with_suffix("").parts)): path
        for package, folder in FOLDERS.items()
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not any(parent.is_symlink() for parent in path.parents)
    }


def imports(source: str) -> Iterator[Import]:
    """The imports of a module, outside the standard library."""
    for name, line, late in walk(ast.parse(source), late=False):
        if name.partition(".")[0] not in sys.stdlib_module_names:
            yield Import(name, line, late)


def walk(node: ast.AST, late: bool) -> Iterator[tuple[str, int, bool]]:
    if isinstance(node, ast.Import):
        yield from ((alias.name, node.lineno, late) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        start = "." * node.level + (node.module or "")
        yield from ((f"{start}.{alias.name}", node.lineno, late) for alias in node.names)
    elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        for statement in node.body:
            yield from walk(statement, late=True)
        for statement in node.orelse:
            yield from walk(statement, late)
    else:
        inside = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inside)


def belongs(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def room_of(module: str) -> Room:
    (room,) = [room for room in ROOMS if belongs(module, room.modules)]
    return room


def forbidden(module: str, source: str) -> list[Import]:
    """What a module imports without being allowed to."""
    room = room_of(module)
    always = room.imports + (room.modules if room.own else ())
    # `import encdoctor` gives its version and nothing else
    named = ((found, "encdoctor.__version__" if found.name == "encdoctor" else found.name) for found in imports(source))
    return [
        found for found, name in named if not belongs(name, always) and not (found.late and belongs(name, room.late))
    ]


@pytest.mark.parametrize("module", modules())
def test_each_module_imports_only_what_its_room_may(module: str) -> None:
    found = forbidden(module, modules()[module].read_text(encoding="utf-8"))
    assert not [f"{one.name} in line {one.line}" for one in found]


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.modules[0])
def test_the_table_allows_nothing_that_nobody_needs(room: Room) -> None:
    """So that the table stays as strict as the code allows."""
    wanted: set[str] = set()
    for module, path in modules().items():
        if room_of(module) is room:
            names = {one.name for one in imports(path.read_text(encoding="utf-8"))}
            wanted |= names | ({"encdoctor.__version__"} if "encdoctor" in names else set())
    unused = [allowed for allowed in (*room.imports, *room.late) if not any(belongs(w, (allowed,)) for w in wanted)]
    assert not unused, f"take {unused} out of the table: no module of {room.modules} imports it any more"


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("encdoctor.checks.masks.new", "import torch"),
        ("encdoctor.checks.masks.new", "def check():\n    from torch import nn"),
        ("encdoctor.checks.masks.new", "from encdoctor.lab.lab import Lab"),
        ("encdoctor.checks.masks.new", "from encdoctor.checks.masks import padding_mask_ignored"),
        ("encdoctor.checks.masks.new", "from encdoctor import lab"),
        ("encdoctor.checks.masks.new", "from . import padding_mask_ignored"),
        ("encdoctor.reports.new", "if TYPE_CHECKING:\n    import torch"),
        ("encdoctor.reports.new", "from encdoctor.lab.lab import Lab"),
        ("encdoctor.reports.new", "import pandas"),
        ("encdoctor.runner", "from encdoctor.isolation import judge"),
        ("encdoctor.runner", "from encdoctor.checks.masks import padding_mask_ignored"),
        ("encdoctor.runner", "def late():\n    import encdoctor.reports.console"),
        ("encdoctor.reference.new", "from encdoctor.model import Finding"),
        ("encdoctor.reference.new", "import rich"),
        ("encdoctor.cli", "from encdoctor import registry"),
        ("encdoctor.cli", "if not TYPE_CHECKING:\n    import rich"),
        ("encdoctor.cli", "try:\n    import torch\nexcept ImportError:\n    pass"),
        ("encdoctor.lab.new", "import rich"),
        ("encdoctor.model", "import numpy"),
    ],
)
def test_what_is_forbidden_is_found(module: str, line: str) -> None:
    assert forbidden(module, line)


# ---- what is loaded ------------------------------------------------------------------------------------------

HEAVY = {"torch", "pandas", "matplotlib.pyplot"}
RUN = {
    "schema": "encdoctor/run-1",
    "version": "0",
    "environment": {},
    "seconds": 0.0,
    "complete": True,
    "rules": {},
    "reports": [],
}


def loaded_by(code: str, cwd: Path) -> str:
    """Runs code in another process; which heavy packages it loaded, and what it printed before."""
    script = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{code}\nprint(*sorted(sys.modules.keys() & {HEAVY!r}))"
    done = subprocess.run([sys.executable, "-c", script], cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("module", ["encdoctor", "encdoctor.cli", "encdoctor.api", "encdoctor.reports"])
def test_an_import_loads_nothing_heavy(module: str, tmp_path: Path) -> None:
    assert loaded_by(f"import {module}", tmp_path) == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["check", "--help"],
        ["--version"],
        ["rules"],
        ["rules", "--json"],
        ["explain", "padding-mask-ignored"],
        ["render", "report.json"],
        ["render", "report.json", "--html", "report.html"],
    ],
    ids=" ".join,
)
def test_what_judges_nothing_loads_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps(RUN), encoding="utf-8")
    assert loaded_by(f"import encdoctor.cli\nassert encdoctor.cli.run({arguments!r}) == 0", tmp_path) == ""


def test_loading_torch_is_noticed(tmp_path: Path) -> None:
    assert loaded_by("import encdoctor.lab.lab", tmp_path) == "torch"
