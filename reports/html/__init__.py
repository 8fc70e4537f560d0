"""The report as one HTML page: self-contained, without scripts, harmless whatever the model's names hold."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from encdoctor.model import Confidence, Outcome, RuleText, Run, TargetReport
from encdoctor.reports import json, wording
from encdoctor.reports.plots import Plot, influence

_HERE = Path(__file__).parent


def render(run: Run) -> str:
    """The page. It is made from the run as it is saved, so that it looks the same when loaded later."""
    saved = json.load(json.dump(run))
    style = Markup((_HERE / "style.css").read_text(encoding="utf-8"))
    return _template().render(run=saved, style=style).strip() + "\n"


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(_HERE, encoding="utf-8"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(words=wording, Outcome=Outcome, Confidence=Confidence)
    environment.globals.update(influence=_influence, help_url=_help_url)
    return environment.get_template("page.html")


def _shown(value: object) -> object:
    """Every text on its way to the page passes here; `Markup` is ours."""
    return value if isinstance(value, Markup) else wording.clean(value, 20_000)


def _influence(report: TargetReport, index: int) -> tuple[Plot, Markup] | None:
    plot = influence(report.evidence.get("influence", {}), key=f"influence-{index}")
    return None if plot is None else (plot, Markup(plot.svg))


def _help_url(rules: dict[str, RuleText], code: str) -> str:
    """A link is followed with one click, so that only a web address may become one."""
    url = rules[code].url if code in rules else ""
    return url if url.startswith("https://") else ""
