"""Naming a target: what loads, whose code it is, and the sentence for everything that does not."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from encdoctor.model import CannotJudge
from encdoctor.target import Loaded, Origin, load, origin_of, unwrap
from encdoctor.weights import with_weights

TARGETS = Path(__file__).parent / "targets"


@pytest.fixture(autouse=True)
def same_modules_afterwards() -> Iterator[None]:
    """Loading changes the path and imports modules, as it must; the next test should not see it."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if not name.startswith(("torch", "encdoctor", "numpy")):
            del sys.modules[name]


def loaded(text: str, folder: Path = TARGETS, **arguments: Any) -> Loaded:
    return load(text, arguments, folder)


def refusal(text: str, folder: Path = TARGETS, **arguments: Any) -> str:
    with pytest.raises(CannotJudge) as caught:
        load(text, arguments, folder)
    sentence = str(caught.value)
    assert "\n" not in sentence and len(sentence) < 500
    return sentence


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)


MODEL = "from torch import nn\nclass Model(nn.Linear):\n    def __init__(self): super().__init__(3, 3)\n"


class TestLoading:
    @pytest.mark.parametrize("name", ["Plain", "factory", "Namespace.Inner", "Open"])
    def test_what_builds_can_be_built_again(self, name: str) -> None:
        target = loaded(f"named_encoders.py:{name}")
        assert target.name == f"named_encoders.py:{name}"
        assert target.rebuild is not None
        assert isinstance(target.rebuild(), nn.Module) and target.rebuild() is not target.model

    @pytest.mark.parametrize("name", ["instance", "stack"])
    def test_an_instance_is_taken_as_it_is(self, name: str) -> None:
        assert loaded(f"named_encoders.py:{name}").rebuild is None

    def test_a_module_is_found_from_the_working_directory(self) -> None:
        assert type(loaded("named_encoders:Plain").model).__module__ == "named_encoders"

    def test_a_path_is_relative_to_the_working_directory(self) -> None:
        assert isinstance(loaded("targets/named_encoders.py:Plain", TARGETS.parent).model, nn.Module)

    def test_arguments_reach_the_constructor(self) -> None:
        model = loaded("named_encoders.py:Needy", d_model=6, num_heads=3, dropout=0.5).model
        assert model.dropout == 0.5

    def test_open_ended_arguments_pass(self) -> None:
        assert loaded("named_encoders.py:Open", colour="red").model.anything == {"colour": "red"}

    @pytest.mark.parametrize("name", ["wrapped", "compiled"])
    def test_a_wrapper_is_taken_off_and_noted(self, name: str) -> None:
        target = loaded(f"named_encoders.py:{name}")
        assert type(target.model).__name__ == "Plain"
        assert len(target.notes) == 1 and "was taken off" in target.notes[0]

    def test_what_only_looks_wrapped_is_left(self) -> None:
        class DataParallel(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.module = nn.Linear(1, 1)

        model = DataParallel()
        assert unwrap(model) == (model, ())

    def test_a_file_shadows_no_module_of_its_name(self, tmp_path: Path) -> None:
        write(tmp_path, json=MODEL)
        before = sys.modules["json"]
        assert type(loaded("json.py:Model", tmp_path).model).__module__ != "json"
        assert sys.modules["json"] is before

    def test_two_files_of_one_stem_each_get_the_module_beside_them(self, tmp_path: Path) -> None:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            write(tmp_path / name, blocks=MODEL.replace("Model", name.title()))
            write(tmp_path / name, models=f"from blocks import {name.title()}\n")
        for name in ("one", "two", "one"):
            assert type(loaded(f"{name}/models.py:{name.title()}", tmp_path).model).__name__ == name.title()

    def test_a_file_of_a_package_may_import_relatively(self, tmp_path: Path) -> None:
        package = tmp_path / "outer" / "inner"
        package.mkdir(parents=True)
        write(tmp_path / "outer", __init__="", base=MODEL)
        write(package, __init__="", model="from ..base import Model\n")
        target = loaded("outer/inner/model.py:Model", tmp_path)
        assert target.origin == Origin("outer", tmp_path)

    def test_a_file_does_not_see_our_arguments(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "argv", ["encdoctor", "check", "--json", "-"])
        write(tmp_path, parses="import argparse\nargparse.ArgumentParser().parse_args()\n" + MODEL)
        assert loaded("parses.py:Model", tmp_path)


class TestOrigin:
    def test_a_project_file_is_its_own(self) -> None:
        origin = loaded("named_encoders.py:Plain").origin
        assert not origin.installed and origin.folder == TARGETS
        assert origin.owns(origin.package, str(TARGETS / "named_encoders.py"))
        assert origin.owns("other", str(TARGETS / "other.py"))
        assert not origin.owns("torch.nn.modules.linear", nn.__file__)
        assert not origin.owns("other", str(TARGETS / "venv" / "site-packages" / "other.py"))
        assert not origin.owns("encdoctor.lab.lab", str(TARGETS / "encdoctor" / "lab" / "lab.py"))
        assert not origin.owns("x", "<string>")

    def test_the_project_reaches_from_the_working_directory(self) -> None:
        assert loaded("targets/named_encoders.py:Plain", TARGETS.parent).origin.folder == TARGETS.parent

    def test_a_file_elsewhere_owns_its_folder(self, tmp_path: Path) -> None:
        assert loaded(f"{TARGETS}/named_encoders.py:Plain", tmp_path).origin.folder == TARGETS

    def test_a_factory_of_an_installed_model_is_the_packages(self) -> None:
        origin = loaded("named_encoders.py:of_torch").origin
        assert origin == Origin("torch", None, installed=True)
        assert origin.owns("torch.nn.modules.transformer", "")

    def test_a_container_of_own_layers_is_own(self) -> None:
        assert not loaded("named_encoders.py:stack").origin.installed

    def test_a_model_of_torch_alone_is_torchs(self) -> None:
        assert origin_of(nn.Sequential(nn.Linear(1, 1))) == Origin("torch", None, installed=True)

    def test_our_own_encoders_are_legitimate_but_our_tools_are_not(self) -> None:
        class Case(nn.Module):
            pass

        Case.__module__ = "encdoctor.cases.masks.some_case"
        origin = origin_of(Case())
        assert origin == Origin("encdoctor.cases", None)
        assert origin.owns("encdoctor.cases.plain", "") and not origin.owns("encdoctor.lab.lab", "")


class TestRefusals:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("", "a target is written"),
            (":", "a target is written"),
            ("named_encoders.py", "write `named_encoders.py:Plain`"),
            ("named_encoders", "write `named_encoders:ClassName`"),
            ("named_encodrs.py:Plain", "did you mean `named_encoders.py`"),
            ("named_encodrs:Plain", "did you mean `named_encoders`"),
            ("nowhere.at.all:Plain", "there is no module `nowhere`"),
            ("./:Plain", "is a folder"),
            ("no name:Plain", "neither a module's name nor a .py file"),
            ("named_encoders.py:Plane", "did you mean `Plain`"),
            ("named_encoders.py:Zzzzzz", "it defines `Forwardless`"),
            ("named_encoders.py:Namespace", "no torch.nn.Module: this is no encoder"),
            ("named_encoders.py:torch", "is a module: this is no encoder"),
            ("named_encoders.py:TARGETS.none", "has no `TARGETS.none`"),
            ("named_encoders.py:Forwardless", "has no `forward`: this is no encoder"),
            (
                "named_encoders.py:Needy",
                "needs the arguments `d_model` and `num_heads`: give --arg d_model=…",
            ),
            ("named_encoders.py:pair", "`pair()` returned a tuple, no torch.nn.Module"),
            ("named_encoders.py:failing", "raised RuntimeError: no weights here at"),
            ("named_encoders.py:Tensor", "no torch.nn.Module"),
        ],
    )
    def test_says_what_to_do(self, text: str, said: str) -> None:
        assert said in refusal(text)

    def test_one_missing_argument(self) -> None:
        assert "needs the argument `num_heads`: give --arg num_heads=…" in refusal("named_encoders.py:Needy", d_model=4)

    def test_an_unknown_argument_names_the_nearest(self) -> None:
        assert "did you mean `d_model`?" in refusal("named_encoders.py:Needy", d_modl=4, num_heads=2)
        assert "takes no arguments" in refusal("named_encoders.py:factory", x=1)
        assert "leave out --arg x" in refusal("named_encoders.py:instance", x=1)

    def test_a_constructor_that_raises_is_quoted_with_its_line(self) -> None:
        sentence = refusal("named_encoders.py:Needy", d_model=4, num_heads=3)
        assert "`Needy(d_model=4, num_heads=3)` raised ValueError: 4 is not divisible by 3 at" in sentence
        assert "named_encoders.py:27" in sentence

    @pytest.mark.parametrize(
        ("source", "said"),
        [
            ("import torch\nimport not_there\n", "No module named 'not_there' at"),
            ("def f(:\n", "SyntaxError: invalid syntax at"),
            ("1 / 0\n", "ZeroDivisionError: division by zero at"),
            ("import sys\nsys.exit(0)\n", "ends the program while it is imported (exit code 0) at"),
        ],
    )
    def test_a_file_that_does_not_import(self, tmp_path: Path, source: str, said: str) -> None:
        write(tmp_path, broken=source)
        for text in ("broken.py:Model", "broken:Model", "broken.py:Model"):
            sentence = refusal(text, tmp_path)
            assert said in sentence and "broken.py:" in sentence

    def test_the_line_of_the_user_is_named_and_not_the_librarys(self, tmp_path: Path) -> None:
        write(tmp_path, deep="from torch import nn\n\nlayer = nn.Linear('a', 2)\n")
        assert "deep.py:3 (`layer = nn.Linear('a', 2)`)" in refusal("deep.py:layer", tmp_path)

    def test_a_module_missing_inside_a_package(self, tmp_path: Path) -> None:
        (tmp_path / "kit").mkdir()
        write(tmp_path / "kit", __init__="", encoders=MODEL)
        assert "did you mean `kit.encoders`?" in refusal("kit.encoder:Model", tmp_path)


class TestWeights:
    """Weights in each format reach the model and every copy that is built."""

    @pytest.mark.parametrize("form", ["w.pt", "w.safetensors", "w.safetensors.index.json"])
    @pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "encoder._orig_mod."])
    def test_formats_and_prefixes(self, tmp_path: Path, form: str, prefix: str) -> None:
        ones = {f"{prefix}inner.weight": torch.ones(2, 2), f"{prefix}inner.bias": torch.ones(2)}
        if form == "w.pt":
            torch.save(ones, tmp_path / form)
        else:
            save_file(ones, tmp_path / "w.safetensors")
            index = {"weight_map": dict.fromkeys(ones, "w.safetensors")}
            (tmp_path / "w.safetensors.index.json").write_text(json.dumps(index))
        target = with_weights(loaded("named_encoders.py:Plain"), tmp_path / form)
        assert target.rebuild is not None
        for model in (target.model, target.rebuild()):
            assert all(bool((parameter == 1).all()) for parameter in model.parameters())
        assert target.notes == (f"weights of {tmp_path / form}",)

    @pytest.mark.parametrize(
        ("saved", "said"),
        [
            (None, "there is no file"),
            ({"inner.weight": torch.ones(2, 2)}, "has no `inner.bias`"),
            ({"inner.weight": torch.ones(3, 2), "inner.bias": torch.ones(2)}, "of shape (3, 2)"),
            ([1, 2], "holds no tensors by name"),
            (Origin("pkg", None), "cannot be read as weights"),  # a pickle that would run code is not loaded
        ],
    )
    def test_refusals(self, tmp_path: Path, saved: Any, said: str) -> None:
        if saved is not None:
            torch.save(saved, tmp_path / "w.pt")
        with pytest.raises(CannotJudge) as caught:
            with_weights(loaded("named_encoders.py:Plain"), tmp_path / "w.pt")
        assert said in str(caught.value)
