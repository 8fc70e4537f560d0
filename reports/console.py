"""The report on a terminal.

Every line is wrapped here and printed as `Text`, so that nothing in it is read as markup, no line is longer
than the terminal is wide, and none ends in spaces. Where the terminal has no Unicode, text is spelt in ASCII.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.text import Text

from encdoctor.model import Finding, Outcome, Result, RuleText, Run, TargetReport, Where
from encdoctor.reports import wording
from encdoctor.reports.symptoms import Symptom
from encdoctor.reports.wording import Root, one_line

_STYLES = {
    "error": "bold red",
    "warning": "bold yellow",
    "note": "cyan",
    "sound": "bold green",
    "open": "bold yellow",
    "failed": "bold red",
}
_ASCII = str.maketrans(
    {"→": "->", "❯": ">", "│": "|", "·": "-", "…": "...", "─": "-", "×": "x", "−": "-", "–": "-", "—": "-"}
    | {
        "≤": "<=",
        "≥": ">=",
        "≠": "!=",
        "≈": "~",
        "√": "sqrt ",
        "’": "'",
        "‘": "'",
        "“": '"',
        "”": '"',
        "•": "*",
    }
)
_LABEL = 11  # columns of the labels: "undecided" and two spaces


def render(run: Run, console: Console, verbosity: int = 0) -> None:
    """Print the run; -1 is the short form, 1 the long one."""
    page = _Page(console, verbosity)
    if verbosity < 0:
        _short(page, run)
    else:
        _long(page, run)


def render_rules(rules: Mapping[str, RuleText], console: Console) -> None:
    """Print the catalogue, one family after the other."""
    page = _Page(console)
    families: dict[str, list[str]] = {}
    for code in sorted(rules):
        families.setdefault(rules[code].family, []).append(code)
    widest = max((len(rule.slug) for rule in rules.values()), default=0)
    for family, codes in families.items():
        page.line((one_line(family), "bold"))
        for code in codes:
            page.rule_row(code, rules[code], widest)
        page.gap()
    page.line((f"{wording.counted(len(rules), 'rule')} · encdoctor explain RULE tells more about one", "dim"))


def render_explanation(code: str, rule: RuleText, console: Console) -> None:
    """Print a rule's documentation."""
    page = _Page(console)
    page.hang(
        page.text((code, "bold"), " "), page.text((rule.slug, "bold"), f"  {rule.severity}, {rule.family}")
    )
    page.gap()
    page.hang(Text(), page.text(one_line(rule.summary)))
    for key, body in rule.sections.items():
        page.gap()
        page.line((wording.heading(key), "bold"))
        for index, paragraph in enumerate(wording.paragraphs(body)):
            if index:
                page.gap()
            page.hang(Text("  "), page.text(paragraph))
    if rule.url:
        page.gap()
        page.hang(Text(), page.text(one_line(rule.url)))


def render_symptoms(symptoms: Iterable[Symptom], rules: Mapping[str, tuple[str, RuleText]], console: Console) -> None:
    """Print symptoms with the rules that may be behind them, likeliest first; `rules` has code and text by slug."""
    page = _Page(console)
    for index, symptom in enumerate(symptoms):
        if index:
            page.gap()
        page.hang(Text(), page.text((symptom.seen, "bold")))
        for slug in symptom.rules:
            if slug in rules:
                code, text = rules[slug]
                page.hang(Text("  "), page.text((f"{code} {slug}", "bold"), f": {one_line(text.summary)}"))
        if symptom.advice:
            page.hang(Text("  "), page.text(symptom.advice))
    page.gap()
    page.hang(Text(), page.text("encdoctor explain RULE tells more; encdoctor check looks for them"))


# ---- the order of the page ---------------------------------------------------------------------------------


def _short(page: _Page, run: Run) -> None:
    for report in run.reports:
        _verdict(page, report)
        for finding, _ in wording.roots(report):
            place = wording.position(finding.where[0]) if finding.where else ""
            head = f"{place}: " if place else ""
            page.single(head, *_name(finding), f": {one_line(finding.message)}")


def _long(page: _Page, run: Run) -> None:
    for report in run.reports:
        _verdict(page, report)
    several = len(run.reports) > 1
    for report in run.reports:
        if several and report.failure is None:
            page.gap()
            page.bar(one_line(report.target))
        _target(page, report)
    _end(page, run)


def _verdict(page: _Page, report: TargetReport) -> None:
    style = _STYLES[wording.standing(report)]
    reason = f": {one_line(report.failure)}" if report.failure is not None else ""
    body = page.text((wording.verdict(report), style), reason)
    page.hang(page.text((one_line(report.target), "bold"), "  "), body)


def _target(page: _Page, report: TargetReport) -> None:
    if report.failure is not None:
        return
    _understood(page, report)
    for root in wording.faults(report):
        _root(page, root)
    _notes(page, wording.notes(report))
    page.gap()
    _passed(page, wording.ended(report, Outcome.PASSED))
    _open(page, report)
    _set_aside(page, report)
    for sentence in report.capped:
        page.field("shortened", one_line(sentence))


def _understood(page: _Page, report: TargetReport) -> None:
    page.field("call", wording.contract_line(report.contract))
    if report.contract and (page.verbose or wording.doubtful(report.contract)):
        page.field("override", wording.OVERRIDE)
    page.field("intent", wording.intent_line(report.intent, page.verbose))
    if page.verbose:
        page.field("model", wording.model_line(report.model))


# ---- findings ----------------------------------------------------------------------------------------------


def _name(finding: Finding) -> list[_Piece]:
    name = one_line(f"{finding.rule} {finding.slug}")
    return [(str(finding.severity), _STYLES[finding.severity]), " ", (name, "bold")]


def _root(page: _Page, root: Root) -> None:
    finding = root.finding
    page.gap()
    page.line(*_name(finding))
    page.hang(Text("  "), page.text(one_line(finding.message)))
    _places(page, finding.where)
    page.gap()
    for label, text in wording.proof(finding):
        page.field(label, text)
    page.field("cause", one_line(finding.cause))
    _fix(page, finding)
    for index, consequence in enumerate(root.explains):
        page.field("" if index else "explains", _explained(consequence))


def _places(page: _Page, where: list[Where]) -> None:
    if not where:
        return
    first = where[0]
    page.gap()
    line = wording.position(first)
    page.hang(
        Text("  "), page.text((line, "bold"), " in " if line else "in ", (wording.module(first), "cyan"))
    )
    _code(page, first)
    for line, modules in wording.other_places(where):
        page.hang(Text("  "), page.text(f"also {line} in {modules}" if line else f"also in {modules}"))


def _code(page: _Page, where: Where) -> None:
    lines = wording.excerpt(where)
    digits = max((len(str(number)) for number, _, _ in lines), default=0)
    for number, text, here in lines:
        arrow = ("❯ ", "bold red") if here else "  "
        gutter = f"{number:>{digits}} │ "
        if here:  # never cut: the fault may stand at its end
            page.hang(page.text("  ", arrow, (gutter, "bold")), page.text((text, "bold")))
        else:
            page.single("  ", arrow, (gutter, "dim"), text, cut=True)


def _fix(page: _Page, finding: Finding) -> None:
    page.field("fix", wording.clean(finding.fix.text).strip())
    for line in wording.clean(finding.fix.diff or "").splitlines():
        style = {"+": "green", "-": "red"}.get(line[:1], "dim")
        page.single(" " * (_LABEL + 2), (line.expandtabs(4), style), cut=True)
    page.field("", wording.trust(finding), "green" if finding.fix.confidence == "confirmed" else "dim")


def _explained(finding: Finding) -> str:
    return one_line(f"{finding.rule} {finding.slug}: {finding.message}")


def _notes(page: _Page, notes: list[Root]) -> None:
    if notes:
        page.gap()
    for finding, explains in notes:
        place = wording.position(finding.where[0]) if finding.where else ""
        page.field(
            "note", _explained(finding) + (f" ({place})" if place else ""), label_style=_STYLES["note"]
        )
        for consequence in explains:
            page.field("explains", _explained(consequence))


# ---- what the other checks came to -------------------------------------------------------------------------


def _names(results: Iterable[Result]) -> str:
    return ", ".join(one_line(f"{result.rule} {result.slug}") for result in results)


def _passed(page: _Page, results: list[Result]) -> None:
    names = f": {_names(results)}" if page.verbose and results else ""
    page.field("passed", wording.counted(len(results), "check") + names, label_style="green")


def _open(page: _Page, report: TargetReport) -> None:
    for outcome in (Outcome.UNDECIDED, Outcome.ERRORED):
        for group in wording.grouped(wording.ended(report, outcome)):
            reason = f": {group.reason}" if group.reason else ""
            page.field(str(outcome), _names(group.rules) + reason, label_style="yellow")
            if group.settle:
                page.field("", f"to settle it: {group.settle}")


def _set_aside(page: _Page, report: TargetReport) -> None:
    not_applicable = wording.ended(report, Outcome.NOT_APPLICABLE)
    skipped = wording.ended(report, Outcome.SKIPPED)
    if page.verbose:
        for label, results in (("n/a", not_applicable), ("skipped", skipped)):
            for group in wording.grouped(results):
                page.field(label, _names(group.rules) + (f": {group.reason}" if group.reason else ""))
        return
    said = [f"{len(not_applicable)} did not apply"] if not_applicable else []
    said += [f"{len(skipped)} skipped"] if skipped else []
    page.field("other", f"{', '.join(said)} (-v names them)" if said else "", "dim")


def _end(page: _Page, run: Run) -> None:
    codes = [root.finding.rule for report in run.reports for root in wording.faults(report)]
    page.gap()
    if not run.complete:
        page.line((wording.INCOMPLETE, "bold yellow"))
    if codes:
        page.line((f"encdoctor explain {one_line(codes[0])} tells more", "dim"))
    page.hang(Text(), page.text((wording.footer(run.environment, run.version, run.seconds), "dim")))


# ---- lines -------------------------------------------------------------------------------------------------

_Piece = str | tuple[str, str]  # a text, or a text and its style


class _Page:
    """Puts lines on a console."""

    def __init__(self, console: Console, verbosity: int = 0) -> None:
        self.console = console
        self.verbose = verbosity > 0
        self.ascii = console.options.ascii_only

    def text(self, *pieces: _Piece) -> Text:
        """The pieces in a row, as the console can show them."""
        whole = Text()
        for piece in pieces:
            plain, style = (piece, "") if isinstance(piece, str) else piece
            whole.append(self._spelt(wording.harmless(plain)), style)
        return whole

    def _spelt(self, plain: str) -> str:
        if not self.ascii:
            return plain
        return plain.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")

    def gap(self) -> None:
        """An empty line."""
        self.console.print()

    def line(self, *pieces: _Piece) -> None:
        """The pieces, wrapped."""
        self.hang(Text(), self.text(*pieces))

    def bar(self, title: str) -> None:
        """A line that starts a target's part."""
        rest = max(self.console.width - len(title) - 4, 0)
        self.single((f"── {title} " + "─" * rest, "dim"), cut=True)

    def field(self, label: str, text: str, style: str = "", label_style: str = "dim") -> None:
        """A labelled text; nothing when it is empty."""
        if text:
            self.hang(Text("  ").append(label.ljust(_LABEL), label_style), self.text((text, style)))

    def rule_row(self, code: str, rule: RuleText, widest: int) -> None:
        """A line of the catalogue."""
        severity = (f"{rule.severity:<9}", _STYLES[rule.severity])
        slug = one_line(rule.slug).ljust(min(widest, 32))
        head = self.text("  ", (one_line(code), "bold"), "  ", severity, slug, "  ")
        self.hang(head, self.text(one_line(rule.summary)))

    def single(self, *pieces: _Piece, cut: bool = False) -> None:
        """One line that is never wrapped: cut on a terminal, and in a file where that is asked for."""
        line = self.text(*pieces)
        if cut or self.console.is_terminal:
            line.truncate(self.console.width, overflow="crop" if self.ascii else "ellipsis")
        self._put(line)

    def hang(self, head: Text, body: Text) -> None:
        """The body beside the head, or under it where the head takes more than two thirds of the width."""
        width = self.console.width
        indent = head.cell_len
        if 3 * indent > 2 * width:
            for line in head.wrap(self.console, width):
                self._put(line)
            head, indent = Text("    "), 4
        for index, line in enumerate(body.wrap(self.console, max(width - indent, 1), tab_size=4)):
            self._put((Text(" " * indent) if index else head) + line)

    def _put(self, line: Text) -> None:
        line.rstrip()
        self.console.print(line, soft_wrap=True)  # it fits already
