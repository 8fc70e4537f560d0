"""What is installed is what is in the tree, and nothing lands in site-packages but `encdoctor`.

`encdoctor.checks`, `.reports`, `.reference` and `.cases` are folders elsewhere in the tree, mapped by pyproject.toml
and reached through links where nothing is installed. An editable install hides what the mapping forgets; so wheels
are built here, from the tree and from an sdist, and their files compared with the folders.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS: dict[str, Any] = PYPROJECT["tool"]["setuptools"]
FOLDERS: dict[str, str] = SETUPTOOLS["package-dir"]
ROOMS = {package: folder for package, folder in FOLDERS.items() if package != "encdoctor"}
BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE")


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def files_of(folder: Path) -> set[Path]:
    """All files below a folder that are meant to be shipped; links are not followed."""
    found = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    return {path for path in found if "__pycache__" not in path.parts and not is_behind_link(folder, path)}


def is_behind_link(folder: Path, path: Path) -> bool:
    return any((folder / parent).is_symlink() for parent in path.parents)


def tree(root: Path = ROOT) -> dict[Path, Path]:
    """Where each file of the tree has to be installed, and which file it is."""
    return {
        Path(*package.split(".")) / file: root / folder / file
        for package, folder in FOLDERS.items()
        for file in files_of(root / folder)
    }


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a build reads: not what earlier builds left behind, nor what is edited while the tests run."""
    copy = tmp_path_factory.mktemp("source")
    for name in BUILT_FROM:
        shutil.copy(ROOT / name, copy / name)
    for folder in FOLDERS.values():
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture(scope="module", params=["tree", "sdist"])
def installed(request: pytest.FixtureRequest, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing in it but our wheel, built from the tree or from an sdist of it."""
    built, site = tmp_path_factory.mktemp("built"), tmp_path_factory.mktemp("site")
    # without isolation, so that nothing is fetched; `build` makes the wheel from the sdist unless told otherwise
    only_wheel = ("--wheel",) if request.param == "tree" else ()
    run(sys.executable, "-m", "build", "--no-isolation", *only_wheel, "--outdir", built, source, cwd=built)
    (wheel,) = built.glob("*.whl")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile")
    run(*pip, "--target", site, wheel, cwd=built)
    return site


def test_each_file_of_the_tree_is_installed_as_it_is(installed: Path, source: Path) -> None:
    expected = tree(source)
    assert {Path("encdoctor") / file for file in files_of(installed / "encdoctor")} == set(expected)
    different = [str(path) for path, file in expected.items() if (installed / path).read_bytes() != file.read_bytes()]
    assert not different


def test_data_is_among_the_files() -> None:
    names = {path.name for path in tree()}
    assert {"schema.json", "page.html", "style.css", "py.typed"} <= names


def test_no_room_is_installed_under_its_bare_name(installed: Path) -> None:
    names = {path.name for path in installed.iterdir()} - {"bin"}
    assert names == {"encdoctor", f"encdoctor-{PYPROJECT['project']['version']}.dist-info"}


def test_the_installed_package_runs_away_from_the_tree(installed: Path, tmp_path: Path) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(installed)!r}); import encdoctor.cli, encdoctor.reports.html\n"
        "print(encdoctor.__file__); sys.exit(encdoctor.cli.run(['rules']))"
    )
    printed = run(sys.executable, "-I", "-c", script, cwd=tmp_path)
    assert printed.startswith(str(installed))
    assert "padding-mask-ignored" in printed


def test_pyproject_lists_the_packages_that_there_are() -> None:
    there = {
        ".".join((package, *init.parent.parts))
        for package, folder in FOLDERS.items()
        for init in files_of(ROOT / folder)
        if init.name == "__init__.py"
    }
    assert sorted(SETUPTOOLS["packages"]) == sorted(there)


def test_each_folder_with_modules_is_a_package() -> None:
    folders = {file.parent for file in tree().values() if file.suffix == ".py"}
    assert not [folder for folder in sorted(folders) if not (folder / "__init__.py").is_file()]


@pytest.mark.parametrize("package", ROOMS)
def test_a_relative_link_leads_from_the_package_to_the_room(package: str) -> None:
    link = ROOT / Path(*package.split("."))
    assert link.is_symlink(), f"{link.relative_to(ROOT)} is no link: git needs core.symlinks to be on"
    assert link.readlink() == Path("..") / ROOMS[package]
    assert (link / "__init__.py").is_file()


@pytest.mark.parametrize("room", sorted(folder for folder in ROOMS.values() if "/" not in folder))
def test_a_room_refuses_its_bare_name(room: str) -> None:
    command = [sys.executable, "-c", f"import {room}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stderr.strip().endswith(f"ImportError: import encdoctor.{room}, not {room}")


def test_the_version_is_the_same_everywhere() -> None:
    import encdoctor

    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert PYPROJECT["project"]["version"] == encdoctor.__version__
    assert f"## [{encdoctor.__version__}]" in changelog


def test_constraints_pin_each_direct_dependency() -> None:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert all(str(pin.specifier).startswith("==") for pin in pins)
    pinned = {canonicalize_name(pin.name): str(pin.specifier)[2:] for pin in pins}
    project = PYPROJECT["project"]
    for text in (*project["dependencies"], *project["optional-dependencies"]["dev"]):
        wanted = Requirement(text)
        assert wanted.specifier.contains(pinned[canonicalize_name(wanted.name)]), text
