"""What every renderer says in the same words, and the only door through which the user's text comes in.

Names, messages and source lines are the user's, or an attacker's: `harmless` takes out what a terminal or a
browser could obey, and what would hide text from the reader.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from encdoctor.model import Confidence, Finding, Outcome, Result, Severity, TargetReport, Where

LONGEST = 1000  # characters of one text; more is a dump that nobody reads, and the JSON has it all

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control, with the escape of terminals
    "\u00ad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"  # invisible
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"  # no characters at all
)
_BREAKS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")


def harmless(text: object) -> str:
    """The text without control, invisible and direction-changing characters."""
    return _UNSEEN.sub("", _BREAKS.sub("\n", str(text)))


def clean(text: object, longest: int = LONGEST) -> str:
    """The harmless text, cut when it is too long."""
    whole = str(text)
    more = f"… ({len(whole) - longest:,} more characters)" if len(whole) > longest else ""
    return harmless(whole[:longest]) + more


def one_line(text: object, longest: int = LONGEST) -> str:
    """The clean text with every run of white space as one space."""
    return " ".join(clean(text, longest).split())


def number(value: object) -> str:
    """A value as it is read: three digits, 65,500 not 6.55e+04, 1e-9 not 1e-09."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return one_line(value, 40)
    if 1000 <= abs(value) < 1e6:
        return f"{float(f'{value:.3g}'):,.0f}"
    return re.sub(r"e([+-])0*", lambda sign: "e" + sign[1].strip("+"), f"{value:.3g}")


def amount(value: object, unit: str) -> str:
    """The value with its unit."""
    return f"{number(value)} {one_line(unit)}".rstrip()


def counted(count: int, noun: str) -> str:
    """1 error, 2 errors."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


# ---- the verdict -------------------------------------------------------------------------------------------


class Root(NamedTuple):
    """A root cause and everything that it explains, at once or through another finding."""

    finding: Finding
    explains: list[Finding]


def roots(report: TargetReport) -> list[Root]:
    """Every finding is here exactly once, the most severe root first.

    A finding whose explanation is missing or circular stands for itself: nothing may drop out of a report.
    """
    known = {finding.id: finding for finding in report.findings}
    folded: dict[str, Root] = {}
    consequences: list[tuple[str, Finding]] = []
    for finding in report.findings:
        root = _root_of(finding, known)
        if root is finding:
            folded[finding.id] = Root(finding, [])
        else:
            consequences.append((root.id, finding))
    for root_id, finding in consequences:
        folded[root_id].explains.append(finding)
    return sorted(folded.values(), key=lambda root: root.finding.severity.rank)


def _root_of(finding: Finding, known: Mapping[str, Finding]) -> Finding:
    current, seen = finding, {finding.id}
    while cause := known.get(current.explained_by or ""):
        if cause.id in seen:
            return finding
        seen.add(cause.id)
        current = cause
    return current


def faults(report: TargetReport) -> list[Root]:
    """The roots that are errors or warnings."""
    return [root for root in roots(report) if root.finding.severity is not Severity.NOTE]


def notes(report: TargetReport) -> list[Root]:
    """The roots that are notes."""
    return [root for root in roots(report) if root.finding.severity is Severity.NOTE]


def standing(report: TargetReport) -> str:
    """The verdict in one word: error, warning, sound, open (not everything could be judged) or failed."""
    if report.failure is not None:
        return "failed"
    if found := faults(report):
        return str(found[0].finding.severity)
    outcomes = {result.outcome for result in report.results}
    judged = outcomes & {Outcome.PASSED, Outcome.FAILED}
    unsettled = outcomes & {Outcome.UNDECIDED, Outcome.ERRORED}
    return "sound" if judged and not unsettled else "open"


def verdict(report: TargetReport) -> str:
    """What was found and what stays open, in one line; healthy is only what was judged in full."""
    if report.failure is not None:
        return "could not be judged"
    return ", ".join(_found(report))


def _found(report: TargetReport) -> list[str]:
    severities = [root.finding.severity for root in roots(report)]
    counts = [counted(severities.count(level), level) for level in Severity if level in severities]
    if not faults(report):
        judged = any(result.outcome in (Outcome.PASSED, Outcome.FAILED) for result in report.results)
        healthy = standing(report) == "sound"
        counts.insert(0, "healthy" if healthy else "no fault found" if judged else "nothing was judged")
    outcomes = [result.outcome for result in report.results]
    for outcome, said in ((Outcome.UNDECIDED, "undecided"), (Outcome.ERRORED, "could not run")):
        if outcome in outcomes:
            counts.append(f"{outcomes.count(outcome)} {said}")
    return counts


# ---- what was understood -----------------------------------------------------------------------------------

_INPUTS = {"ids": "token ids", "pixels": "images", "audio": "audio samples"}
_TRUE = {
    "keep": "True is a real token",
    "drop": "True is padding",
    "additive": "added to the scores",
    "lengths": "lengths",
    "pad_id": "padding is read off the ids",
    "unknown": "what True means is not known",
}
INCOMPLETE = "The run was stopped early: this report is incomplete."
OVERRIDE = "--input, --mask-arg, --mask-true, --batch-second, --output"


def contract_line(contract: Mapping[str, Any]) -> str:
    """How the encoder is called, in one line; empty when no call was found."""
    if not contract:
        return ""
    kind = str(contract.get("input", "input"))
    order = "batch first" if contract.get("batch_first", True) else "batch second"
    output = contract.get("output") or "the output itself"
    parts = [
        f"{contract.get('argument', 'input')}: {_INPUTS.get(kind, kind)}, {order}",
        _mask_part(contract.get("mask")),
        f"hidden states: {output}",
    ]
    return one_line(" · ".join(parts))


def doubtful(contract: Mapping[str, Any]) -> bool:
    """Whether a part of the contract was guessed, so that the reader should know how to override it."""
    mask = contract.get("mask") or {}
    return not (contract.get("certain", True) and mask.get("certain", True))


def _mask_part(mask: Mapping[str, Any] | None) -> str:
    if not mask:
        return "no mask"
    meaning = str(mask.get("true", "unknown"))
    why = [str(mask["why"])] if mask.get("why") else []
    doubts = [] if mask.get("certain", True) else ["not certain"]
    reasons = ", ".join(why + doubts)
    name = f"{mask['argument']}: " if mask.get("argument") else ""
    return f"{name}{_TRUE.get(meaning, meaning)}" + (f" ({reasons})" if reasons else "")


def intent_line(intent: Iterable[Mapping[str, Any]], everything: bool = False) -> str:
    """What the author says he meant; what nobody said (a default) only when everything is wanted."""
    said = [item for item in intent if everything or item.get("source") != "default"]
    return one_line(
        " · ".join(f"{item.get('what')}: {_yes(item.get('value'))} ({item.get('source')})" for item in said)
    )


def _yes(value: object) -> str:
    return {"True": "yes", "False": "no"}.get(str(value), str(value))


def model_line(model: Mapping[str, Any]) -> str:
    """The model's size in one line."""
    parts = [counted(model[key], key[:-1]) for key in ("layers", "heads") if model.get(key)]
    parts += [f"width {model['d_model']}"] if model.get("d_model") else []
    if isinstance(model.get("parameters"), int):
        parts.append(f"{model['parameters']:,} parameters")
    if model.get("understood") is False:
        parts.append("its structure was not fully understood")
    return ", ".join(parts)


# ---- one finding -------------------------------------------------------------------------------------------


def position(where: Where) -> str:
    """file.py:line, or nothing when the line is unknown."""
    if not where.file:
        return ""
    return one_line(f"{where.file}:{where.line}" if where.line else where.file)


def module(where: Where) -> str:
    """The module's path, with its class."""
    name = one_line(where.module) or "the encoder itself"
    return f"{name} ({one_line(where.class_name)})" if where.class_name else name


def other_places(where: list[Where]) -> list[tuple[str, str]]:
    """The places after the first, as (file:line, modules), a line's modules together."""
    together: dict[str, list[str]] = {}
    for place in where[1:]:
        together.setdefault(position(place), []).append(one_line(place.module) or "the encoder itself")
    return [(line, _shortened(names)) for line, names in together.items()]


def _shortened(names: list[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def excerpt(where: Where) -> list[tuple[int, str, bool]]:
    """The source around a place as (number, text, is it the line), without the shared indentation."""
    lines = where.excerpt or ([(where.line, where.code)] if where.code else [])
    texts = [clean(text, 400).expandtabs(4).replace("\n", " ").rstrip() for _, text in lines]
    shared = min((len(text) - len(text.lstrip()) for text in texts if text), default=0)
    return [(line, text[shared:], line == where.line) for (line, _), text in zip(lines, texts, strict=True)]


def proof(finding: Finding) -> list[tuple[str, str]]:
    """What was measured, and against what, as (label, text)."""
    reason = one_line(finding.limit.because)
    limit = number(finding.limit.value) + (f" ({reason})" if reason else "")
    return [("measured", amount(finding.measured.value, finding.measured.unit)), ("limit", limit)]


def trust(finding: Finding) -> str:
    """How sure the fix is, and what trying it did."""
    fix = finding.fix
    tried = ""
    if fix.before is not None and fix.after is not None:
        tried = f": {number(fix.before)} → {number(fix.after)}"
    if fix.confidence is Confidence.CONFIRMED:
        return f"confirmed, tried on a copy of the model{tried}"
    return (
        f"{fix.confidence}, tried on a copy of the model{tried}" if tried else f"{fix.confidence}, not tried"
    )


# ---- what the checks came to -------------------------------------------------------------------------------


class Group(NamedTuple):
    """Checks that ended alike."""

    rules: list[Result]
    reason: str
    settle: str


def ended(report: TargetReport, *outcomes: Outcome) -> list[Result]:
    """The results with one of these outcomes."""
    return [result for result in report.results if result.outcome in outcomes]


def grouped(results: Iterable[Result]) -> list[Group]:
    """Results with the same reason together, so that one missing answer is told once."""
    groups: dict[tuple[str, str, str], Group] = {}
    for result in results:
        key = (str(result.outcome), result.reason, result.settle)
        groups.setdefault(key, Group([], one_line(result.reason), one_line(result.settle))).rules.append(
            result
        )
    return list(groups.values())


def footer(environment: Mapping[str, Any], version: str, seconds: float) -> str:
    """What the run ran on, in one line."""
    named = [(name, environment.get(name)) for name in ("python", "torch", "platform", "device", "seed")]
    bare = ("platform", "device")
    parts = [
        f"encdoctor {version}",
        *(str(v) if n in bare else f"{n} {v}" for n, v in named if v not in (None, "")),
    ]
    return one_line(" · ".join([*parts, f"{number(seconds)} s"]))


def heading(key: str) -> str:
    """A documentation section's name as a heading."""
    name = one_line(key).replace("_", " ")
    return name[:1].upper() + name[1:]


def paragraphs(text: str) -> list[str]:
    """A documentation section's paragraphs: prose on one line, lists and code as they stand."""
    blocks = [
        block.rstrip()
        for block in re.split(r"\n\s*\n", inspect.cleandoc(clean(text, 20_000)))
        if block.strip()
    ]
    return [
        block if re.search(r"^(\s|[-*•>] |\d+\. )", block, re.MULTILINE) else one_line(block)
        for block in blocks
    ]
