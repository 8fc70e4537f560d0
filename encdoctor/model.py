"""The words of a diagnosis, as plain data.

A *check* looks at evidence and returns a `Verdict`. A `Suspect` is a verdict of guilt that still has to be
tried; the runner tries it and turns it into a `Finding`. A `Run` holds one `TargetReport` for each target and
is all that a renderer ever reads. Standard library only: reports are read where torch is not installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """How much a finding matters. Errors make results wrong, warnings make them worse, notes inform."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """0 for the most severe."""
        return list(Severity).index(self)


class Outcome(StrEnum):
    """What became of one check on one target."""

    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"
    NOT_APPLICABLE = "not_applicable"
    ERRORED = "errored"
    SKIPPED = "skipped"


class Confidence(StrEnum):
    """How sure a fix is: `CONFIRMED` was tried on the model and the symptom went away."""

    CONFIRMED = "confirmed"
    LIKELY = "likely"
    POSSIBLE = "possible"


@dataclass(frozen=True)
class Limit:
    """A bound that carries its reason.

    `value` is in `unit`; `because` is one clause that a reader can check (a theorem, a measurement, a paper).
    """

    value: float
    unit: str
    because: str


@dataclass(frozen=True)
class Rule:
    """The name of a fault. The text about it is the docstring of the check's module."""

    code: str
    slug: str
    severity: Severity


@dataclass(frozen=True)
class Place:
    """Where something happens: a module path of `named_modules()` and a line of the user's source.

    `module` is "" for the root. `file` is relative to the working directory where it lies below it. `own` tells
    whether the line belongs to the target's own project or top-level package.
    """

    module: str = ""
    class_name: str = ""
    file: str = ""
    line: int = 0
    own: bool = True


@dataclass(frozen=True)
class Trial:
    """A repair to be tried on a copy of the model; see `encdoctor.lab.repair.intervene` for the kinds.

    `kind` names the intervention, `at` the recorded operations it acts on, `value` its parameter.
    """

    kind: str
    at: tuple[str, ...] = ()
    value: float | None = None


@dataclass(frozen=True)
class Passed:
    """The evidence shows no fault. `measured` is what a suspect would have quoted."""

    measured: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class NotApplicable:
    """The question does not arise for this model."""

    reason: str


@dataclass(frozen=True)
class Undecided:
    """The evidence cannot settle it; `settle` says what would (an option, an example batch, weights)."""

    reason: str
    settle: str


@dataclass(frozen=True)
class Suspect:
    """A fault seen in the evidence, before its fix was tried.

    `where` is ordered, the likeliest place first. `severity` lowers the rule's own. `measured` is in
    `limit.unit`. `about` tells suspects of one rule apart (a parameter or layer name).
    """

    rule: Rule
    message: str
    cause: str
    measured: float
    limit: Limit
    where: tuple[Place, ...]
    fix: str
    trials: tuple[Trial, ...] = ()
    severity: Severity | None = None
    confidence: Confidence = Confidence.LIKELY
    about: str = ""


Verdict = Passed | NotApplicable | Undecided | Suspect | list[Suspect]


# ---- what is saved -------------------------------------------------------------------------------------------


@dataclass
class Where:
    """A `Place` with the source around it: `excerpt` is a list of [line number, text]."""

    module: str
    class_name: str
    file: str
    line: int
    code: str
    excerpt: list[tuple[int, str]] = field(default_factory=list)


@dataclass
class Measured:
    """A measured number and its unit."""

    value: float
    unit: str


@dataclass
class Fix:
    """What to change; `before` and `after` are the measured value without and with the tried fix."""

    text: str
    diff: str | None
    confidence: Confidence
    before: float | None = None
    after: float | None = None


@dataclass
class Finding:
    """One root cause, or one consequence of it (`explained_by` holds the id of the cause)."""

    id: str
    fingerprint: str
    rule: str
    slug: str
    severity: Severity
    message: str
    measured: Measured
    limit: Limit
    where: list[Where]
    cause: str
    fix: Fix
    explained_by: str | None = None


@dataclass
class Result:
    """What became of one check."""

    rule: str
    slug: str
    outcome: Outcome
    reason: str = ""
    settle: str = ""


@dataclass
class TargetReport:
    """Everything about one target, for every renderer. `failure` is set where it could not be judged."""

    target: str
    failure: str | None = None
    contract: dict[str, Any] = field(default_factory=dict)
    intent: list[dict[str, Any]] = field(default_factory=list)
    model: dict[str, Any] = field(default_factory=dict)
    anatomy: dict[str, Any] = field(default_factory=dict)
    cost: dict[str, Any] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    evidence: dict[str, Any] = field(default_factory=dict)
    capped: list[str] = field(default_factory=list)

    def roots(self) -> list[Finding]:
        """The findings that nothing else explains, the most severe first."""
        return sorted((f for f in self.findings if f.explained_by is None), key=lambda f: f.severity.rank)


@dataclass
class RuleText:
    """A rule's documentation, as it stands in the check's docstring, by section."""

    slug: str
    family: str
    severity: Severity
    summary: str
    sections: Mapping[str, str]
    url: str = ""


@dataclass
class Run:
    """One invocation: the rules that were known and a report for each target, in the order they were given."""

    version: str
    environment: dict[str, Any]
    rules: dict[str, RuleText]
    reports: list[TargetReport]
    seconds: float = 0.0
    complete: bool = True
    schema: str = "encdoctor/run-1"


class CannotJudge(Exception):
    """The target could not be loaded, built or called; the text is one sentence that says what to do."""
