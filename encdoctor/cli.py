"""The command line. Everything heavy is imported late: `--help` must not wait for torch.

Exit codes: 0 nothing at or above `--fail-on`; 1 findings; 2 usage, or a target that could not be judged;
3 encdoctor's own fault. The highest wins; an interrupted run exits with 130.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from encdoctor import __version__
from encdoctor.model import CannotJudge, Run, Severity
from encdoctor.options import CHOICES, RUN_SETTINGS, TARGET_SETTINGS, Options, UsageError, checked_settings

if TYPE_CHECKING:
    from rich.console import Console

    from encdoctor.isolation import Job, Judged
    from encdoctor.model import RuleText
    from encdoctor.registry import Check

F = TypeVar("F", bound=Callable[..., Any])

OK, FOUND, MISUSED, OUR_FAULT, INTERRUPTED = 0, 1, 2, 3, 130
DEMO_RULE = "padding-mask-ignored"
_REPORT_IT = "please report it, with what --debug shows"


def main() -> None:
    """The entry point."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """One invocation: its exit code. What goes wrong is one sentence on stderr; --debug shows more."""
    debug = "--debug" in arguments
    try:
        code = cli.main(list(arguments), "encdoctor", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else OK
    except click.exceptions.Abort:  # click's word for Ctrl-C
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return MISUSED
    except CannotJudge as error:
        _show_traceback(debug)
        _complain(str(error))
        return MISUSED
    except BrokenPipeError:  # `encdoctor … | head`: nobody reads on; 1 as rich and click have it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FOUND
    except Exception as error:
        _show_traceback(debug)
        _complain(f"encdoctor itself failed ({type(error).__name__}: {error}): {_REPORT_IT}")
        return OUR_FAULT


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", prog_name="encdoctor", message="%(prog)s %(version)s")
def cli() -> None:
    """Examines Transformer encoders: what is wrong, where, why, the proof, and the fix."""


# ---- options that several commands have ------------------------------------------------------------------


def _applied(*options: Callable[[F], F]) -> Callable[[F], F]:
    def apply(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return apply


_building = _applied(
    click.option("--arg", "arg", multiple=True, metavar="NAME=VALUE", help="An argument of the constructor."),
    click.option("--weights", metavar="FILE", help="Weights to load."),
    click.option("--seed", type=int, help="Seed of everything random (default 0)."),
    click.option("--device", help="Where to run, e.g. cpu or cuda (default cpu)."),
    click.option("--time-limit", type=float, metavar="S", help="Seconds after which a target is given up (300)."),
    click.option(
        "--isolate/--no-isolate",
        default=None,
        help="In a child process (default), or here without time limit.",
    ),
    click.option("--debug", is_flag=True, help="Show tracebacks."),
)

_calling = _applied(
    click.option("--input", type=click.Choice(CHOICES["input"]), help="What forward's main argument holds."),
    click.option("--mask-arg", metavar="NAME", help="The argument that takes the padding mask."),
    click.option("--mask-true", type=click.Choice(CHOICES["mask-true"]), help="What True means in the mask."),
    click.option("--lengths-arg", metavar="NAME", help="The argument that takes the lengths."),
    click.option("--pad-id", type=int, help="The token id that is padding."),
    click.option("--batch-first/--batch-second", default=None, help="Which axis of the input is the batch."),
    click.option("--output", metavar="PATH", help="Where the hidden states are in what forward returns."),
    click.option("--intent", multiple=True, metavar="WHAT", help="What is meant: causal, window=4, shared, …"),
)

_looks = _applied(
    click.option("-q", "--quiet", is_flag=True, help="Only verdicts and root causes."),
    click.option("-v", "--verbose", is_flag=True, help="Everything, with each result."),
    click.option("--no-color", is_flag=True, help="No colours."),
)

_files = _applied(
    click.option("--json", "json", metavar="PATH", help="Write the report as JSON; - is stdout."),
    click.option("--html", metavar="PATH", help="Write the report as one HTML page; - is stdout."),
)


# ---- commands --------------------------------------------------------------------------------------------


@cli.command()
@click.argument("targets", nargs=-1, metavar="TARGET…")
@click.option("--select", multiple=True, metavar="RULE", help="Only these: a code, slug, family or prefix (MSK).")
@click.option("--ignore", multiple=True, metavar="RULE", help="Not these.")
@click.option("--fast", is_flag=True, default=None, help="No training, no fuzzing.")
@click.option("--fail-on", type=click.Choice(CHOICES["fail-on"]), help="What makes the exit code 1 (warning).")
@click.option("--severity", multiple=True, metavar="RULE=LEVEL", help="Another severity for a rule.")
@_calling
@_building
@_files
@_looks
def check(targets: tuple[str, ...], debug: bool, quiet: bool, verbose: bool, no_color: bool, **given: Any) -> int:
    """Examine encoders, and say what is wrong with them.

    TARGET is pkg.module:Attr, path/file.py:Attr, or a name from the configuration; Attr is an nn.Module
    class, an instance, or a function without arguments that builds one. Without a TARGET, all that the
    configuration names are examined.

    Checking a file executes it, as importing it would: check only code that you would run.

    Exit codes: 0 nothing found, 1 findings, 2 something could not be judged, 3 a fault of encdoctor itself.
    """
    jobs, settings = _jobs(targets, given)
    outcome, judged = _examined(jobs, settings.get("isolate", True), debug)
    _say_faults()
    _deliver(outcome, settings, _console(no_color), verbose - quiet)
    if len(judged) < len(jobs):
        return INTERRUPTED
    return _exit_code(outcome, judged, settings.get("fail-on", "warning"))


@cli.command()
@click.argument("target")
@_calling
@_building
@click.option("--no-color", is_flag=True, help="No colours.")
def inspect(target: str, debug: bool, no_color: bool, **given: Any) -> int:
    """Show what encdoctor understood of an encoder: contract, intent, anatomy. Nothing is judged.

    Inspecting a file executes it, as importing it would.
    """
    jobs, settings = _jobs((target,), given)
    jobs = [replace(job, checked=False) for job in jobs]
    outcome, judged = _examined(jobs, settings.get("isolate", True), debug)
    if not judged:
        return INTERRUPTED
    report = outcome.reports[0]
    if report.failure is not None:
        _complain(f"{report.target}: {report.failure}")
        return OUR_FAULT if judged[0].ours else MISUSED
    console = _console(no_color)
    for title in ("contract", "intent", "model", "anatomy", "cost"):
        console.print(title, style="bold")
        for line in _outlined(getattr(report, title)):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    return OK


@cli.command()
@click.argument("what", nargs=-1, required=True, metavar="RULE|TEXT|-")
@click.option("--no-color", is_flag=True, help="No colours.")
def explain(what: tuple[str, ...], no_color: bool) -> None:
    """Explain a rule, or what an error message or symptom may mean.

    RULE is a code or slug; TEXT is what you see, in your words or PyTorch's; - reads it, or a traceback, from
    standard input.
    """
    from encdoctor import registry
    from encdoctor.reports import console
    from encdoctor.reports.symptoms import matching

    text = sys.stdin.read() if what == ("-",) else " ".join(what)
    checks = registry.discover()
    found = registry.named(checks, text.strip())
    if found is not None:
        console.render_explanation(found.rule.code, _headed(found.text), _console(no_color))
        return
    shown = matching(text)
    if not shown:
        if len(what) == 1 and len(text.split()) == 1:
            registry.find(checks, text)  # raises, with the nearest rule
        raise UsageError("that text is not known: try its last line, fewer words, or `encdoctor symptoms`")
    console.render_symptoms(shown, _texts(checks), _console(no_color))


@cli.command()
@click.argument("text", nargs=-1)
@click.option("--no-color", is_flag=True, help="No colours.")
def symptoms(text: tuple[str, ...], no_color: bool) -> None:
    """List what people see, and the rules that may be behind it; only what matches TEXT where it is given."""
    from encdoctor import registry
    from encdoctor.reports import console
    from encdoctor.reports.symptoms import SYMPTOMS, matching

    shown = matching(" ".join(text)) if text else list(SYMPTOMS)
    if not shown:
        raise UsageError("no symptom matches that text: `encdoctor symptoms` lists them all")
    console.render_symptoms(shown, _texts(registry.discover()), _console(no_color))


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.option("--no-color", is_flag=True, help="No colours.")
def rules(as_json: bool, no_color: bool) -> None:
    """List all rules."""
    from encdoctor import registry
    from encdoctor.reports import console

    _say_faults()
    checks = registry.discover()
    if as_json:
        click.echo(json.dumps({code: _as_data(check) for code, check in checks.items()}, indent=1))
        return
    console.render_rules({code: check.text for code, check in checks.items()}, _console(no_color))


@cli.command()
@click.argument("rule", default=DEMO_RULE)
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@_files
@_looks
def demo(rule: str, debug: bool, quiet: bool, verbose: bool, no_color: bool, **given: Any) -> int:
    """Check an encoder that is broken on purpose, so that RULE finds something.

    The exit code is 0 when it does.
    """
    from encdoctor import registry

    found = registry.find(registry.discover(), rule)
    jobs, settings = _jobs((_broken(found),), given)
    outcome, judged = _examined(jobs, True, debug)
    _deliver(outcome, settings, _console(no_color), verbose - quiet)
    code = _exit_code(outcome, judged, "never")
    shown = any(finding.rule == found.rule.code for report in outcome.reports for finding in report.findings)
    return code or (OK if shown else FOUND)


@cli.command()
@click.argument("report", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_files
@_looks
def render(report: Path, quiet: bool, verbose: bool, no_color: bool, **given: Any) -> None:
    """Show a saved report again, here or as a file. Needs no torch."""
    from encdoctor.reports import json as saved

    try:
        outcome = saved.load(report.read_text(encoding="utf-8"))
    except (saved.UnreadableReport, UnicodeDecodeError) as error:
        raise UsageError(f"{report}: {error}") from error
    chosen = {name: path for name, path in given.items() if path}
    _write(outcome, chosen)
    if not chosen:
        _show(outcome, _console(no_color), verbose - quiet)


# ---- running ---------------------------------------------------------------------------------------------


def _jobs(targets: tuple[str, ...], given: dict[str, Any]) -> tuple[list[Job], dict[str, Any]]:
    """A job for each target, and the settings of the run as a whole."""
    from encdoctor import config, registry
    from encdoctor.isolation import Job
    from encdoctor.options import layered

    project = config.load(Path.cwd())
    settings = _given(given)
    jobs = [Job(text, _known_rules(options)) for text, options in config.asked(project, targets, settings)]
    for job in jobs:  # a rule that does not exist is told before anything is run
        registry.select(registry.discover(), job.options.select, job.options.ignore)
    whole = layered(project.settings, settings)
    if [whole.get("json"), whole.get("html")].count("-") > 1:
        raise UsageError("only one report can go to stdout: give a path for the other")
    return jobs, whole


def _given(given: dict[str, Any]) -> dict[str, Any]:
    """What the command line says, under the options' names."""
    named = {name.replace("_", "-"): value for name, value in given.items() if value not in (None, ())}
    for name in ("arg", "severity"):
        if name in named:
            named[name] = dict(_pair(f"--{name}", text, name == "arg") for text in named[name])
    for name in ("select", "ignore", "intent"):
        if name in named:
            named[name] = [word for text in named[name] for word in text.split(",") if word]
    checked_settings(named, {**TARGET_SETTINGS, **RUN_SETTINGS}, "command line")
    return named


def _pair(option: str, text: str, literal: bool) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"{option} takes NAME=VALUE, not {text!r}")
    return name, _literal(value) if literal else value


def _literal(text: str) -> Any:
    """A Python literal, or the text itself: `--arg activation=gelu` needs no quotes."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _known_rules(options: Options) -> Options:
    """The options with the rules of `severity` by their codes."""
    from encdoctor import registry

    checks = registry.discover()
    levels = {registry.find(checks, rule).rule.code: level for rule, level in options.severity.items()}
    return replace(options, severity=levels)


def _examined(jobs: list[Job], isolate: bool, debug: bool) -> tuple[Run, list[Judged]]:
    """The run, and what each target's report does not say; fewer than jobs where it was interrupted."""
    from encdoctor.api import assemble
    from encdoctor.isolation import judge

    started = time.monotonic()
    judged: list[Judged] = []
    reports = judge(jobs, isolate)
    try:
        for number, job in enumerate(jobs, 1):
            with _progress(f"examining {job.target}" + (f" ({number} of {len(jobs)})" if len(jobs) > 1 else "")):
                judged.append(next(reports))
            if debug and judged[-1].details:
                click.echo(judged[-1].details, err=True)
    except KeyboardInterrupt:
        _complain("interrupted: the report is not complete")
    finally:
        reports.close()
    first = jobs[0].options
    complete = len(judged) == len(jobs)
    return assemble(judged, first.seed, first.device, time.monotonic() - started, complete), judged


@contextmanager
def _progress(text: str) -> Iterator[None]:
    """A line on a terminal's stderr while something lasts."""
    if not sys.stderr.isatty():
        yield
        return
    click.echo(f"{text} …", nl=False, err=True)
    try:
        yield
    finally:
        click.echo("\r\x1b[2K", nl=False, err=True)


def _exit_code(outcome: Run, judged: Sequence[Judged], fail_on: str) -> int:
    if any(one.ours for one in judged):
        return OUR_FAULT
    if any(report.failure is not None for report in outcome.reports):
        return MISUSED
    if fail_on == "never":
        return OK
    worst = Severity(fail_on).rank
    found = any(finding.severity.rank <= worst for report in outcome.reports for finding in report.roots())
    return FOUND if found else OK


def _broken(found: Check) -> str:
    """The first encoder among a rule's cases that is broken, read without running them."""
    from importlib.util import find_spec

    name = f"encdoctor.cases.{found.family}.{found.rule.slug.replace('-', '_')}"
    try:
        spec = find_spec(name)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise UsageError(f"there is no demonstration of {found.rule.slug}: `encdoctor explain` tells about it")
    tree = ast.parse(Path(spec.origin).read_bytes())
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name.startswith("Broken_"):
            return f"{name}:{node.name}"
    raise UsageError(f"there is no demonstration of {found.rule.slug}: `encdoctor explain` tells about it")


# ---- what is shown ---------------------------------------------------------------------------------------


def _deliver(outcome: Run, settings: dict[str, Any], console: Console, verbosity: int) -> None:
    """The files that were asked for, and the report on stdout unless one of them goes there."""
    files = {name: settings[name] for name in ("json", "html") if settings.get(name)}
    _write(outcome, files)
    if "-" not in files.values():
        _show(outcome, console, verbosity)


def _show(outcome: Run, console: Console, verbosity: int) -> None:
    from encdoctor.reports import console as printed

    printed.render(outcome, console, verbosity)


def _write(outcome: Run, files: dict[str, str]) -> None:
    for form, path in files.items():
        text = _as_text(outcome, form)
        if path == "-":
            click.echo(text, nl=False)
            continue
        try:
            Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"the report cannot be written to {path}: {error.strerror}") from error


def _as_text(outcome: Run, form: str) -> str:
    if form == "json":
        from encdoctor.reports import json as saved

        return saved.dump(outcome)
    from encdoctor.reports import html

    return html.render(outcome)


def _console(no_color: bool) -> Console:
    from rich.console import Console

    return Console(no_color=no_color or None, highlight=False)


def _texts(checks: Mapping[str, Check]) -> dict[str, tuple[str, RuleText]]:
    """Code and text of each rule, by slug."""
    return {check.rule.slug: (code, check.text) for code, check in checks.items()}


def _headed(text: RuleText) -> RuleText:
    """The rule's text with the headings of its docstring; a report keeps their short names."""
    from encdoctor.registry import SECTIONS

    headings = {key: heading for heading, key in SECTIONS.items()}
    return replace(text, sections={headings.get(key, key): body for key, body in text.sections.items()})


def _as_data(check: Check) -> dict[str, Any]:
    text = check.text
    return {
        "slug": text.slug,
        "family": text.family,
        "severity": text.severity.value,
        "summary": text.summary,
        "sections": dict(text.sections),
    }


def _outlined(value: Any, depth: int = 1) -> Iterator[str]:
    """Nested data, one fact a line."""
    indent = "  " * depth
    if isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(inner, dict | list) and inner:
                yield f"{indent}{key}:"
                yield from _outlined(inner, depth + 1)
            else:
                yield f"{indent}{key}: {inner}"
    elif isinstance(value, list):
        for item in value:
            yield f"{indent}- {_joined(item)}"


def _joined(item: Any) -> str:
    return ", ".join(f"{key}: {value}" for key, value in item.items()) if isinstance(item, dict) else str(item)


def _say_faults() -> None:
    from encdoctor import registry

    for sentence in registry.faults():
        _complain(sentence)


def _complain(sentence: str) -> None:
    click.echo(f"encdoctor: {sentence}", err=True)


def _show_traceback(debug: bool) -> None:
    if debug:
        traceback.print_exc()
