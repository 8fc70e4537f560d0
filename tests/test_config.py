"""The project's configuration: where it is found, what it may say, and how the layers lie over each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from encdoctor import config
from encdoctor.options import UsageError, layered, options_from


def project(folder: Path, table: str, name: str = "pyproject.toml") -> Path:
    (folder / name).write_text(table)
    return folder


def refusal(folder: Path, table: str) -> str:
    with pytest.raises(UsageError) as caught:
        config.load(project(folder, table))
    return str(caught.value)


def test_nothing_configured_is_fine(tmp_path: Path) -> None:
    assert config.load(tmp_path).settings == {}


def test_the_nearest_one_upwards_counts(tmp_path: Path) -> None:
    project(tmp_path, "[tool.encdoctor]\nseed = 1\n")
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert config.load(inner).settings["seed"] == 1
    project(tmp_path / "a", "[tool.other]\nseed = 2\n")  # says nothing about us
    assert config.load(inner).settings["seed"] == 1
    project(tmp_path / "a", "seed = 3\n", "encdoctor.toml")
    assert config.load(inner).settings["seed"] == 3


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    project(
        tmp_path,
        '[tool.encdoctor]\njson = "out/report.json"\nhtml = "-"\n'
        '[tool.encdoctor.targets.text]\ntarget = "models/text.py:Encoder"\n',
    )
    (tmp_path / "src").mkdir()
    found = config.load(tmp_path / "src")
    assert found.settings == {"json": str(Path("../out/report.json")), "html": "-"}
    assert found.targets["text"]["target"] == str(Path("../models/text.py")) + ":Encoder"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            "[tool.encdoctor]\nselct = []\n",
            "pyproject.toml [tool.encdoctor]: there is no option `selct`: did you mean `select`?",
        ),
        ("[tool.encdoctor]\nseed = 'one'\n", "`seed` must be a whole number, not 'one'"),
        ("[tool.encdoctor]\nseed = true\n", "`seed` must be a whole number"),
        ("[tool.encdoctor]\nselect = [1]\n", "`select` must be a list of strings"),
        ("[tool.encdoctor]\nfast = 'yes'\n", "`fast` must be true or false"),
        ("[tool.encdoctor]\ntime-limit = 0\n", "`time-limit` must be a number of seconds above 0"),
        ("[tool.encdoctor]\nmask-true = 'on'\n", "`mask-true` must be one of keep, drop, additive"),
        ("[tool.encdoctor.targets.text]\nseed = 1\n", "[tool.encdoctor.targets.text]: say what it is"),
        ("[tool.encdoctor.targets.text]\ntarget = 'a:B'\njson = 'x'\n", "there is no option `json`"),
        ("[tool\n", "pyproject.toml cannot be read"),
        ("[tool]\nencdoctor = 3\n", "must be a table"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, table: str, said: str) -> None:
    assert said in refusal(tmp_path, table)


def test_the_command_line_lies_over_the_target_over_the_project(tmp_path: Path) -> None:
    project(
        tmp_path,
        '[tool.encdoctor]\nseed = 1\nignore = "MSK"\narg = {width = 4, depth = 2}\n'
        '[tool.encdoctor.targets.text]\ntarget = "pkg.text:Encoder"\nseed = 2\nignore = ["NUM003"]\n'
        'arg = {depth = 3}\nmask-true = "drop"\nintent = "causal"\n',
    )
    found = config.load(tmp_path)
    [(text, options)] = config.asked(found, ["text"], {"ignore": ["SHP"]})
    assert text == "pkg.text:Encoder"
    assert options.seed == 2 and options.ignore == ("MSK", "NUM003", "SHP")
    assert options.arguments == {"width": 4, "depth": 3}
    assert options.call == {"mask_true": "drop"} and options.intent == ("causal",)
    [(text, options)] = config.asked(found, ["other.py:Model"], {"seed": 5})
    assert (text, options.seed, options.ignore) == ("other.py:Model", 5, ("MSK",))


def test_without_a_target_all_configured_ones_are_meant(tmp_path: Path) -> None:
    table = '[tool.encdoctor.targets.{0}]\ntarget = "pkg:{0}"\n'
    project(tmp_path, table.format("A") + table.format("B"))
    found = config.load(tmp_path)
    assert [text for text, _ in config.asked(found, [], {})] == ["pkg:A", "pkg:B"]
    with pytest.raises(UsageError, match="no target is called `C`"):
        config.asked(found, ["C"], {})
    with pytest.raises(UsageError, match="name a target"):
        config.asked(config.Config(), [], {})


def test_layers() -> None:
    assert layered({"ignore": ["A"]}, {"ignore": ["A", "B"]}, {"select": ["C"]}) == {
        "ignore": ["A", "B"],
        "select": ["C"],
    }


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"intent": ["causl"]}, "did you mean `causal`"),
        ({"severity": {"MSK001": "fatal"}}, "must be error, warning or note"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        options_from(settings)


def test_a_width_may_be_declared() -> None:
    assert options_from({"intent": ["window=4"]}).intent == ("window=4",)
