"""Whatever a target does to its process, the run goes on and says what happened."""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from encdoctor import isolation
from encdoctor.isolation import Job, Judged, judge
from encdoctor.options import Options

TARGETS = Path(__file__).parent / "targets"
STUBBED = (
    f"import sys; sys.path[:] = [{str(TARGETS)!r}, *sys.argv[2:]]; import stub_runner; "
    "stub_runner.install(); from encdoctor.isolation import work; work(sys.argv[1])"
)


@pytest.fixture(autouse=True)
def stubbed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The child gets a runner that calls the model once."""
    monkeypatch.setattr(isolation, "_ENTRY", STUBBED)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # only our own children have their boards there
    monkeypatch.chdir(TARGETS)
    yield


def jobs(*names: str, limit: float = 30.0) -> list[Job]:
    return [Job(f"misbehaving.py:{name}", Options(time_limit=limit)) for name in names]


def one(name: str, limit: float = 30.0) -> Judged:
    return next(judge(jobs(name, limit=limit)))


def sound(judged: Judged) -> bool:
    return judged.report.failure is None and judged.complete and not judged.ours and not judged.crashed


def test_several_targets_share_a_child_and_come_in_order() -> None:
    started = time.monotonic()
    first, second = judge(jobs("Calm", "TakesItsTime"))
    assert sound(first) and sound(second)
    assert [first.report.target, second.report.target] == [
        "misbehaving.py:Calm",
        "misbehaving.py:TakesItsTime",
    ]
    assert time.monotonic() - started < 25


def test_the_limit_is_the_targets_and_not_the_start_ups() -> None:
    assert sound(one("Calm", limit=2.0))


def test_after_each_misdeed_the_next_target_is_judged() -> None:
    endless, after, hard, last = judge([*jobs("NeverEnds", limit=3.0), *jobs("Calm", "ExitsHard", "Calm")])
    assert endless.report.failure is not None and not endless.complete
    assert endless.report.failure.startswith("it did not end in 3 s (--time-limit gives it more time)")
    assert endless.report.failure.endswith("the last module entered was `inner`")
    assert hard.report.failure == "it ended the process with exit code 0; the last module entered was `inner`"
    assert sound(after) and sound(last)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Crashes", "it crashed the interpreter (segmentation fault)"),
        ("IsKilled", "it was killed by the system, as happens when memory runs out"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals")
def test_a_violent_end_is_told(name: str, said: str) -> None:
    judged = one(name)
    assert judged.report.failure == f"{said}; the last module entered was `inner`"
    assert judged.crashed


def test_an_exit_is_told_and_ends_nothing() -> None:
    soft, after = judge(jobs("ExitsSoftly", "Calm"))
    assert soft.report.failure is not None and "ended the program (exit code 0)" in soft.report.failure
    assert sound(after)


def test_what_an_earlier_target_left_behind_is_not_charged_to_the_next() -> None:
    bomb, after = judge(jobs("LeavesABomb", "TakesItsTime"))
    assert sound(bomb) and sound(after)


def test_an_exit_at_import_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "leaves.py").write_text("import os\nos._exit(0)\n")
    judged = next(judge([Job("leaves.py:Model", Options())]))
    assert judged.report.failure is not None
    assert "exit code 0 while it was being loaded, before any module was entered" in judged.report.failure


@pytest.mark.parametrize("isolate", [True, False])
def test_what_a_target_prints_does_not_reach_our_stdout(
    isolate: bool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(TARGETS)
    monkeypatch.setitem(sys.modules, "encdoctor.runner", __import__("stub_runner"))
    monkeypatch.setattr("encdoctor.runner", __import__("stub_runner"), raising=False)
    assert [sound(judged) for judged in judge(jobs("Prints"), isolate)] == [True]
    assert capfd.readouterr().out == ""


def test_an_interruption_ends_the_child() -> None:
    reports = judge(jobs("Calm", "NeverEnds"))
    assert sound(next(reports))
    threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()
    before = _children()
    with pytest.raises(KeyboardInterrupt):
        next(reports)
    assert before and not _children()


def _children() -> list[str]:
    """The boards of living children."""
    return [path.name for path in Path(tempfile.gettempdir()).glob("encdoctor-*")]


def test_outside_a_child_a_heartbeat_is_nothing() -> None:
    isolation.heartbeat("layers.0")


def test_a_heartbeat_is_cheap_and_cut_to_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "_board", None)
    board = tmp_path / "board"
    board.write_bytes(bytes(512))
    isolation._open_board(board)
    isolation.heartbeat("layer." * 200)
    assert board.read_bytes().startswith(b"layer.layer.")
    started = time.perf_counter()
    for _ in range(10_000):
        isolation.heartbeat("encoder.layers.11.attention")
    assert time.perf_counter() - started < 0.2
