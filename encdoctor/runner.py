"""Judges one target: binds, gathers, evaluates, tries the fixes, explains. It never falls over a check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from encdoctor.anatomy import anatomy_of, evidence_of, model_facts
from encdoctor.contract import CallContract, contract_to_plain
from encdoctor.excerpts import fingerprint, to_where
from encdoctor.intent import Intent, read_intent
from encdoctor.isolation import heartbeat
from encdoctor.lab.binding.bind import bind
from encdoctor.lab.conditions import untouched
from encdoctor.lab.lab import A_BACKWARD, A_FORWARD, Broken, Lab, NotMeasured, Treatment
from encdoctor.lab.planner import left_out, needed, plan
from encdoctor.lab.repair.intervene import treatment
from encdoctor.limits import CALLS_RAISING, HIDING
from encdoctor.model import (
    Confidence,
    Finding,
    Fix,
    Measured,
    NotApplicable,
    Outcome,
    Passed,
    Result,
    Severity,
    Suspect,
    TargetReport,
    Trial,
    Undecided,
    Verdict,
)
from encdoctor.options import Options
from encdoctor.registry import Check
from encdoctor.target import Loaded

# How many suspects have their fixes tried; the rest is reported untried, and the report says so.
TRIED_AT_MOST = 8


@dataclass
class Case:
    """A suspect on its way to a finding.

    `of_torch` tells that the target is a class of torch's; `vanishes` lists the cases whose symptom went under the
    confirmed fix, `treated` is the lab under that fix.
    """

    check: Check
    suspect: Suspect
    confidence: Confidence
    of_torch: bool = False
    after: float | None = None
    treated: Lab | None = None
    vanishes: list[Case] = field(default_factory=list)
    explained_by: Case | None = None


def examine(loaded: Loaded, options: Options, checks: Mapping[str, Check]) -> TargetReport:
    """The report on one target. Raises `CannotJudge` where no call binds."""
    with untouched():
        contract = bind(loaded.model, loaded.origin, options.call, options.device, heartbeat)
        intent = read_intent(loaded.model, loaded.origin, options.intent)
        lab = Lab(
            loaded.model,
            contract,
            intent,
            loaded.origin,
            device=options.device,
            seed=options.seed,
            on_enter=heartbeat,
            rebuild=loaded.rebuild,
        )
        try:
            report = _judge(loaded, options, checks, lab)
        finally:
            lab.give_back()
        if lab.custody is not None:
            report.capped.append("the model cannot be copied: it was run in place, in its own dtype, and restored")
        return report


def _judge(loaded: Loaded, options: Options, checks: Mapping[str, Check], lab: Lab) -> TargetReport:
    report = TargetReport(target=loaded.name)
    _gather(lab, checks, options)
    verdicts = {code: _evaluate(lab, check, options) for code, check in checks.items()}
    cases = [
        Case(checks[code], suspect, suspect.confidence, lab.origin.package == "torch")
        for code, verdict in verdicts.items()
        if isinstance(verdict, list)
        for suspect in verdict
    ]
    report.capped += _try_fixes(lab, cases)
    healed = _healed(cases)
    if healed is not None:
        cases += _go_on(healed, checks, verdicts, options)
    _explain(cases)
    report.findings = _findings(cases, options)
    report.results = [_result(checks[code], verdict, report) for code, verdict in verdicts.items()]
    report.contract = contract_to_plain(lab.contract)
    report.intent = [{"what": d.what.value, "value": d.value, "source": d.source} for d in lab.intent]
    report.model = model_facts(lab)
    report.anatomy = anatomy_of(lab)
    report.evidence = evidence_of(lab)
    report.cost = _cost(lab)
    return report


# ---- evaluating ------------------------------------------------------------------------------------------------


def _gather(lab: Lab, checks: Mapping[str, Check], options: Options) -> None:
    """Gathers in the planner's order; what fails is remembered by the lab and met again by the checks."""
    for kind in plan(check.needs for check in checks.values() if not left_out(check.needs, options.fast)):
        try:
            lab.get(kind)
        except NotMeasured:
            continue


def _evaluate(lab: Lab, check: Check, options: Options) -> list[Suspect] | Passed | Result | NotApplicable | Undecided:
    """A verdict with suspects as a list; a Result where the check was skipped or errored."""
    skipped = left_out(check.needs, options.fast)
    if skipped:
        return _outcome(check, Outcome.SKIPPED, skipped)
    try:
        verdict = _call(lab, check)
    except Broken as error:
        return _outcome(check, Outcome.ERRORED, str(error))
    except NotMeasured as reason:
        return Undecided(str(reason), reason.settle)
    except Exception as error:  # a faulty check must not take the others along
        return _outcome(check, Outcome.ERRORED, f"the check raised {type(error).__name__}: {error}")
    return [verdict] if isinstance(verdict, Suspect) else verdict


def _call(lab: Lab, check: Check) -> Verdict:
    return check.function(**{name: _given(lab, hint) for name, hint in check.needs.items()})


def _given(lab: Lab, hint: Any) -> Any:
    kind, optional = needed(hint)
    if kind is CallContract:
        return lab.contract
    if kind is Intent:
        return lab.intent
    try:
        return lab.get(kind)
    except NotMeasured:
        if optional:
            return None
        raise


def _outcome(check: Check, outcome: Outcome, reason: str, settle: str = "") -> Result:
    return Result(check.rule.code, check.rule.slug, outcome, reason, settle)


def _result(check: Check, verdict: Any, report: TargetReport) -> Result:
    if isinstance(verdict, Result):
        return verdict
    if isinstance(verdict, NotApplicable):
        return _outcome(check, Outcome.NOT_APPLICABLE, verdict.reason)
    if isinstance(verdict, Undecided):
        return _undecided(check, verdict, report)
    if isinstance(verdict, list):
        own = [f for f in report.findings if f.rule == check.rule.code]
        loud = any(f.severity is not Severity.NOTE for f in own)
        return _outcome(check, Outcome.FAILED if loud else Outcome.PASSED, "" if loud else "with notes")
    return _outcome(check, Outcome.PASSED, verdict.reason)


def _undecided(check: Check, verdict: Undecided, report: TargetReport) -> Result:
    """What an exception made unmeasurable refers to the finding about the exception."""
    crash = next((f.id for f in report.findings if f.measured.unit in HIDING), None)
    if verdict.settle in (A_FORWARD, A_BACKWARD) and crash is not None:
        return _outcome(check, Outcome.UNDECIDED, f"it raises, see {crash}", f"mend {crash} first")
    return _outcome(check, Outcome.UNDECIDED, verdict.reason, verdict.settle)


# ---- trying fixes ----------------------------------------------------------------------------------------------


def _try_fixes(lab: Lab, cases: list[Case]) -> list[str]:
    """Tries each suspect's repairs on the model and measures all symptoms again; returns what was capped."""
    tried = [case for case in cases if case.suspect.trials]
    for case in tried[:TRIED_AT_MOST]:
        for trial in case.suspect.trials:
            if _confirm(lab, case, trial, cases):
                break
    if len(tried) > TRIED_AT_MOST:
        return [f"fixes of {len(tried) - TRIED_AT_MOST} findings were not tried"]
    return []


def _confirm(lab: Lab, case: Case, trial: Trial, cases: list[Case]) -> bool:
    try:
        treated = lab.under(treatment(lab, trial))
        after = _remaining(treated, case)
    except NotMeasured:
        return False
    if after is None:
        return False
    case.confidence, case.after, case.treated = Confidence.CONFIRMED, after, treated
    plain = lab.under(Treatment(edits={"": lambda operation: operation.output}))
    case.vanishes = [other for other in cases if other is not case and _vanishes(treated, other, plain)]
    return True


def _remaining(treated: Lab, case: Case) -> float | None:
    """What the check measures under the treatment where the suspect is gone; None where it is still there."""
    verdict = _call(treated, case.check)
    suspects = verdict if isinstance(verdict, list) else [verdict] if isinstance(verdict, Suspect) else []
    if any(s.about == case.suspect.about for s in suspects):
        return None
    return verdict.measured if isinstance(verdict, Passed) else 0.0


def _vanishes(treated: Lab, case: Case, plain: Lab) -> bool:
    """Whether a symptom goes under the treatment, and stays where nothing is treated but fused paths are left too."""
    try:
        return _remaining(treated, case) is not None and _remaining(plain, case) is None
    except NotMeasured:
        return False


def _explain(cases: list[Case]) -> None:
    """A case is explained by one whose confirmed fix makes it go, unless its own fix does the same in turn."""
    _fold_exceptions(cases)
    for case in sorted(cases, key=lambda c: (-len(c.vanishes), _severity(c).rank, c.suspect.rule.code)):
        for other in case.vanishes:
            if case.explained_by is None and other.explained_by is None and not _explains(other, case):
                other.explained_by = case


def _fold_exceptions(cases: list[Case]) -> None:
    """One exception is one finding: the rule that knows its text explains the one that only saw it."""
    raising = [case for case in cases if case.suspect.limit.unit == CALLS_RAISING]
    named = [case for case in raising if case.check.rule.slug != "forward-fails"]
    for case in raising:
        if named and case not in named:
            case.explained_by = named[0]


def _explains(one: Case, other: Case) -> bool:
    while other.explained_by is not None:
        other = other.explained_by
    return other is one


def _healed(cases: list[Case]) -> Lab | None:
    """The lab under the confirmed fix of what hides other faults, an exception; None where nothing does."""
    hiding = [case.treated for case in cases if case.suspect.limit.unit in HIDING]
    return next((treated for treated in hiding if treated is not None), None)


def _go_on(healed: Lab, checks: Mapping[str, Check], verdicts: dict[str, Any], options: Options) -> list[Case]:
    """Asks the checks that could not be answered again, on the mended model: a crash must not hide the next fault."""
    found = []
    for code, verdict in verdicts.items():
        if not isinstance(verdict, Undecided):
            continue
        verdicts[code] = _evaluate(healed, checks[code], options)
        suspects = verdicts[code] if isinstance(verdicts[code], list) else []
        found += [Case(checks[code], suspect, suspect.confidence) for suspect in suspects]
    _try_fixes(healed, found)
    return found


# ---- findings --------------------------------------------------------------------------------------------------


def _findings(cases: list[Case], options: Options) -> list[Finding]:
    ordered = sorted(cases, key=lambda c: (c.explained_by is not None, _severity(c).rank, c.suspect.rule.code))
    ids = {id(case): f"f{number}" for number, case in enumerate(ordered, 1)}
    return [_finding(case, ids, options) for case in ordered]


def _finding(case: Case, ids: dict[int, str], options: Options) -> Finding:
    suspect = case.suspect
    rule = suspect.rule
    asked = options.severity.get(rule.code) or options.severity.get(rule.slug)
    fix = Fix(suspect.fix, None, case.confidence)
    if case.confidence is Confidence.CONFIRMED:
        fix.before, fix.after = suspect.measured, case.after
    return Finding(
        id=ids[id(case)],
        fingerprint=fingerprint(rule.slug, next(iter(suspect.where), None), suspect.about),
        rule=rule.code,
        slug=rule.slug,
        severity=Severity(asked) if asked else _severity(case),
        message=suspect.message,
        measured=Measured(suspect.measured, suspect.limit.unit),
        limit=suspect.limit,
        where=[to_where(place) for place in suspect.where],
        cause=suspect.cause,
        fix=fix,
        explained_by=None if case.explained_by is None else ids[id(case.explained_by)],
    )


def _severity(case: Case) -> Severity:
    """The rule's severity, lowered by the suspect or by the place: what the user cannot change is a note."""
    severity = case.suspect.severity or case.suspect.rule.severity
    places = case.suspect.where
    return Severity.NOTE if case.of_torch or (places and not places[0].own) else severity


def _cost(lab: Lab) -> dict[str, Any]:
    return {
        "forwards": lab.passes["forward"] + lab.passes["trace"],
        "backwards": lab.passes["backward"],
        "by_evidence": {k: v for k, v in sorted(lab.passes.items()) if "." in k},
    }
