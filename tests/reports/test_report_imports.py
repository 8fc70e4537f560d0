from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"torch", "rich", "jinja2", "matplotlib", "pandas", "numpy"}
CASES = {
    "import encdoctor.reports": set(),
    "import encdoctor.reports.json": set(),
    "import encdoctor.reports.console": {"rich"},
    "import encdoctor.reports.html": {"jinja2", "matplotlib", "numpy"},
}


@pytest.mark.parametrize("statement", CASES)
def test_each_module_loads_no_more_than_it_draws_with(statement: str) -> None:
    report = f"import sys; {statement}; print(*sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == CASES[statement]


def test_drawing_does_not_load_pyplot() -> None:
    statement = (
        "import sys; from encdoctor.reports.plots import influence; "
        "influence({'matrix': [[1.0]], 'real': 1, 'unit': '', 'expected': 'full'}); "
        "print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", statement], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
