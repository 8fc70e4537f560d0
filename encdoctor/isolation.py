"""Examines targets in a child process, so that nothing a target does can take the run along.

A target may never end, call `os._exit`, crash the interpreter or use up the memory; each of these becomes a
report with a `failure`. One child takes targets in sequence, because starting torch costs seconds; after a
crash or a timeout a new one goes on with the next target.

The child speaks over what was its stdout: a line of JSON for each report. Before any of the target's code
runs, descriptors 1 and 2 are pointed at a pipe of which the last bytes are kept, and descriptor 0 at nothing;
so the target can neither spoil the reports nor wait for an answer. The child ends by itself when the parent
is gone.
"""

from __future__ import annotations

import base64
import contextlib
import faulthandler
import json
import mmap
import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from encdoctor.model import CannotJudge, Outcome, Result, Run, TargetReport
from encdoctor.options import Options

if TYPE_CHECKING:
    from encdoctor.registry import Check
    from encdoctor.target import Loaded

DEFAULT_TIME_LIMIT = 300.0  # seconds a target; the slowest sound encoder of the tests takes a tenth
START_LIMIT = 180.0  # seconds until torch is there; a cold disk has taken 40
_BOARD_SIZE = 512  # bytes; a longer module path is cut
_NOISE_KEPT = 64  # the last chunks of what the target printed
_CHUNK = 4096

_ENTRY = "import sys; sys.path[:] = sys.argv[2:]; from encdoctor.isolation import work; work(sys.argv[1])"


@dataclass(frozen=True)
class Job:
    """One target as the user named it, and what was asked for. `checked` is False where nothing is judged."""

    target: str
    options: Options
    checked: bool = True


@dataclass
class Judged:
    """A target's report, and what the report does not say.

    `ours` tells that encdoctor itself failed, `crashed` that the process ended under it, `complete` that the
    time sufficed; `details` is a traceback.
    """

    report: TargetReport
    ours: bool = False
    crashed: bool = False
    complete: bool = True
    details: str = ""


# ---- where the target is ---------------------------------------------------------------------------------

_board: mmap.mmap | None = None


def heartbeat(path_of_module: str) -> None:
    """Notes the module that is entered now; costs less than a microsecond, and nothing outside a child."""
    if _board is not None:
        _board[:] = (path_of_module or "the root module").encode()[:_BOARD_SIZE].ljust(_BOARD_SIZE, b"\0")


def _clear_board() -> None:
    if _board is not None:
        _board[:] = bytes(_BOARD_SIZE)


# ---- one target, in whichever process --------------------------------------------------------------------


def examine_target(text: str, options: Options, checked: bool = True) -> Judged:
    """Loads and examines one target in this process. Never raises but for an interruption."""
    from encdoctor.target import load
    from encdoctor.weights import with_weights

    _seed(options.seed)
    try:
        loaded = load(text, options.arguments, Path.cwd())
        if options.weights is not None:
            loaded = with_weights(loaded, Path(options.weights))
        return Judged(examine_loaded(loaded, options, checked))
    except CannotJudge as error:
        return Judged(TargetReport(text, failure=str(error)), details=traceback.format_exc())
    except SystemExit as error:
        failure = f"it ended the program (exit code {error.code}) while it was examined: take the exit out of it"
        return Judged(TargetReport(text, failure=failure), details=traceback.format_exc())
    except MemoryError:
        failure = "memory ran out: build a smaller one (fewer layers, a narrower model) with --arg NAME=VALUE"
        return Judged(TargetReport(text, failure=failure), details=traceback.format_exc())
    except Exception as error:
        return Judged(TargetReport(text, failure=_own_fault(error)), ours=True, details=traceback.format_exc())


def examine_loaded(loaded: Loaded, options: Options, checked: bool = True) -> TargetReport:
    """The runner's report on a model that was built, with what was deselected and what loading has to say."""
    from encdoctor import registry, runner

    known = registry.discover()
    chosen = registry.select(known, options.select, options.ignore) if checked else {}
    report: TargetReport = runner.examine(loaded, options, chosen)
    if checked:
        report.results = sorted([*report.results, *_skipped(known, report)], key=lambda result: result.rule)
    if loaded.notes:
        report.model["notes"] = [*report.model.get("notes", ()), *loaded.notes]
    return report


def _skipped(known: Mapping[str, Check], report: TargetReport) -> list[Result]:
    """A result for each rule that the report does not speak of: it was not asked for."""
    said = {result.rule for result in report.results}
    return [
        Result(code, check.rule.slug, Outcome.SKIPPED, "not selected")
        for code, check in known.items()
        if code not in said
    ]


def _own_fault(error: Exception) -> str:
    what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return f"encdoctor itself failed ({what}): please report it, with what --debug shows"


def _seed(seed: int) -> None:
    """A model that is built twice must be the same model."""
    import random

    random.seed(seed)
    with contextlib.suppress(ImportError):  # a missing torch is told when the target is loaded
        import torch

        torch.manual_seed(seed)


# ---- many targets ----------------------------------------------------------------------------------------


def judge(jobs: Sequence[Job], isolate: bool = True) -> Generator[Judged, None, None]:
    """Examines each job and yields its report as soon as it is done, in the order of the jobs."""
    if isolate:
        yield from _judge_apart(jobs)
        return
    for job in jobs:
        with _stdout_kept():
            judged = examine_target(job.target, job.options, job.checked)
        yield judged


@contextlib.contextmanager
def _stdout_kept() -> Iterator[None]:
    """What the target writes goes to stderr, also past Python: stdout is for the report."""
    try:
        ours = os.dup(sys.__stdout__.fileno()) if sys.__stdout__ else None
    except (OSError, ValueError):  # closed, or no file at all
        ours = None
    if ours is None or sys.__stdout__ is None:
        with contextlib.redirect_stdout(sys.stderr):
            yield
        return
    sys.stdout.flush()
    os.dup2(2, sys.__stdout__.fileno())
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(ours, sys.__stdout__.fileno())
        os.close(ours)


def _judge_apart(jobs: Sequence[Job]) -> Generator[Judged, None, None]:
    child: _Child | None = None
    try:
        for job in jobs:
            used = child is not None and child.alive
            if child is None or not child.alive:
                child = _Child()
            judged = child.examine(job)
            if judged.crashed and used:
                # What an earlier target left running may have ended the child: that is not this one's fault.
                child = _Child()
                judged = child.examine(job)
            yield judged
    finally:
        if child is not None:
            child.end()


class _Child:
    """A process that examines targets one after the other."""

    def __init__(self) -> None:
        handle, name = tempfile.mkstemp(prefix="encdoctor-")
        self._board_file = Path(name)
        os.write(handle, bytes(_BOARD_SIZE))
        os.close(handle)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _ENTRY, name, *(path or str(Path.cwd()) for path in sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PYTHONHASHSEED": "0", **os.environ},  # so that the order in a set is the same each time
            start_new_session=True,  # a Ctrl-C is for us alone, and its own children can be ended with it
        )
        self._lines: queue.Queue[dict[str, Any]] = queue.Queue()
        self._noise: deque[bytes] = deque(maxlen=_NOISE_KEPT)
        assert self._process.stdout is not None and self._process.stderr is not None
        _in_background(self._read_lines, self._process.stdout)
        _in_background(self._read_noise, self._process.stderr)
        self._started = False

    @property
    def alive(self) -> bool:
        """Whether it can take another target."""
        return self._process.poll() is None

    def examine(self, job: Job) -> Judged:
        """The report on one target; the child is gone afterwards where it crashed or ran out of time."""
        limit = job.options.time_limit or DEFAULT_TIME_LIMIT
        try:
            self._send(job)
            if not self._started and self._wait(START_LIMIT) is None:
                return self._lost(job, START_LIMIT)
            self._started = True
            answer = self._wait(limit)
        except BaseException:
            self.end()
            raise
        return self._lost(job, limit) if answer is None else _from_line(answer)

    def end(self) -> None:
        """Ends the process, and those that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        self._process.wait()
        self._board_file.unlink(missing_ok=True)

    def _send(self, job: Job) -> None:
        assert self._process.stdin is not None
        line = base64.b64encode(pickle.dumps(job)) + b"\n"
        with contextlib.suppress(BrokenPipeError):  # it died: `_wait` finds that out
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def _wait(self, limit: float) -> dict[str, Any] | None:
        """The next line, or None where the child ended or `limit` seconds passed."""
        deadline = time.monotonic() + limit
        while True:
            ended = not self.alive
            with contextlib.suppress(queue.Empty):
                # In short waits: a process that the target forked keeps the pipe open when the child is gone.
                return self._lines.get(timeout=min(0.2, max(deadline - time.monotonic(), 0.01)))
            if ended or time.monotonic() >= deadline:
                return None

    def _lost(self, job: Job, limit: float) -> Judged:
        code = self._process.poll()
        where = self._last_module()
        noise = b"".join(self._noise).decode(errors="replace")
        self.end()
        failure = _how_it_ended(code, limit, self._started) + where
        crashed = code is not None
        return Judged(TargetReport(job.target, failure=failure), crashed=crashed, complete=crashed, details=noise)

    def _last_module(self) -> str:
        """Where it was, as the end of a sentence."""
        name = self._board_file.read_bytes().rstrip(b"\0").decode(errors="replace")
        if not name:
            return " while it was being loaded, before any module was entered"
        return f"; the last module entered was {name if name == 'the root module' else f'`{name}`'}"

    def _read_lines(self, stream: IO[bytes]) -> None:
        for line in stream:
            with contextlib.suppress(ValueError):
                self._lines.put(json.loads(line))

    def _read_noise(self, stream: IO[bytes]) -> None:
        while chunk := os.read(stream.fileno(), _CHUNK):
            self._noise.append(chunk)


def _in_background(function: Any, stream: IO[bytes]) -> None:
    threading.Thread(target=function, args=(stream,), daemon=True).start()


def _how_it_ended(code: int | None, limit: float, started: bool) -> str:
    if code is None and not started:
        return f"the process that should examine it did not start in {limit:g} s: try --no-isolate"
    if code is None:
        return f"it did not end in {limit:g} s (--time-limit gives it more time)"
    if code >= 0:
        return f"it ended the process with exit code {code}"
    name = signal.Signals(-code).name if -code in list(signal.Signals) else f"signal {-code}"
    known = {
        "SIGKILL": "it was killed by the system, as happens when memory runs out",
        "SIGSEGV": "it crashed the interpreter (segmentation fault)",
        "SIGABRT": "it crashed the interpreter (abort)",
        "SIGBUS": "it crashed the interpreter (bus error)",
        "SIGFPE": "it crashed the interpreter (arithmetic error)",
        "SIGILL": "it crashed the interpreter (illegal instruction)",
    }
    return known.get(name, f"it was ended by {name}")


# ---- the lines between them ------------------------------------------------------------------------------


def _to_line(judged: Judged) -> dict[str, Any]:
    from encdoctor.reports import json as saved

    try:
        run = saved.dump(_run_of(judged.report))
    except Exception as error:  # evidence that is no plain data is a fault of ours
        failed = TargetReport(judged.report.target, failure=_own_fault(error))
        return {"run": saved.dump(_run_of(failed)), "ours": True, "details": traceback.format_exc()}
    return {"run": run, "ours": judged.ours, "details": judged.details}


def _run_of(report: TargetReport) -> Run:
    return Run(version="", environment={}, rules={}, reports=[report])


def _from_line(line: dict[str, Any]) -> Judged:
    from encdoctor.reports import json as saved

    report = saved.load(line["run"]).reports[0]
    return Judged(report, ours=bool(line["ours"]), details=str(line["details"]))


# ---- the child -------------------------------------------------------------------------------------------


@dataclass
class _Channels:
    """The child's own ends of what were its stdin and stdout."""

    jobs: IO[bytes]
    reports: IO[bytes]

    def say(self, line: dict[str, Any]) -> None:
        self.reports.write(json.dumps(line).encode() + b"\n")
        self.reports.flush()


def work(board: str) -> None:
    """What the child does: takes jobs until there are no more."""
    sys.argv = ["encdoctor"]
    channels = _take_over()
    faulthandler.enable()  # a crash tells the Python line, for --debug
    _open_board(Path(board))
    jobs: queue.Queue[Job] = queue.Queue()
    _in_background(lambda stream: _take_jobs(stream, jobs), channels.jobs)
    with contextlib.suppress(ImportError):  # a missing torch is told when the target is loaded
        import torch  # noqa: F401  # outside the target's time
    channels.say({"ready": True})
    while True:
        job = jobs.get()
        _clear_board()
        judged = examine_target(job.target, job.options, job.checked)
        channels.say(_to_line(judged))


def _take_over() -> _Channels:
    """Keeps stdin and stdout for the reports, and gives the target's code others."""
    jobs, reports = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return _Channels(os.fdopen(jobs, "rb"), os.fdopen(reports, "wb"))


def _take_jobs(stream: IO[bytes], jobs: queue.Queue[Job]) -> None:
    for line in stream:
        jobs.put(pickle.loads(base64.b64decode(line)))
    os._exit(0)  # the parent is done, or gone: nobody wants what is still running


def _open_board(path: Path) -> None:
    global _board
    with path.open("r+b") as file:
        _board = mmap.mmap(file.fileno(), _BOARD_SIZE)
