"""The runner judges, tries, explains, and never falls over one part of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from lab_models import Written
from torch import Tensor, nn

from encdoctor import registry
from encdoctor.evidence.influence import PaddingInfluence
from encdoctor.evidence.learning import TinyFit
from encdoctor.lab import gatherers
from encdoctor.lab.lab import Lab, NotMeasured
from encdoctor.model import (
    Confidence,
    NotApplicable,
    Outcome,
    Passed,
    Rule,
    RuleText,
    Severity,
    TargetReport,
    Undecided,
    Verdict,
)
from encdoctor.options import Options
from encdoctor.registry import Check
from encdoctor.runner import examine
from encdoctor.target import Loaded, origin_of

CHECKS = registry.discover()
# Passes of a fast run on a sound model: whoever changes what is gathered changes this figure knowingly.
PINNED = (80, 5)


def report_on(model: nn.Module, *slugs: str, checks: dict[str, Check] | None = None, fast: bool = True) -> TargetReport:
    """The report of the named built-in checks (all where none is named), and of `checks`."""
    chosen = registry.select(CHECKS, slugs, ()) if slugs or checks is None else {}
    return examine(Loaded("it", model, origin_of(model)), Options(fast=fast), {**chosen, **(checks or {})})


def made_up(function: Callable[..., Verdict], kind: type = PaddingInfluence) -> dict[str, Check]:
    """A check that is not in the catalogue."""
    rule = Rule("TST001", "made-up", Severity.ERROR)
    return {"TST001": Check(rule, "test", RuleText("made-up", "test", Severity.ERROR, "", {}), function, {"x": kind})}


@pytest.mark.parametrize(
    ("verdict", "outcome", "reason"),
    [
        (Passed(), Outcome.PASSED, ""),
        (NotApplicable("no mask"), Outcome.NOT_APPLICABLE, "no mask"),
        (Undecided("dark", "light"), Outcome.UNDECIDED, "dark"),
    ],
)
def test_verdicts_become_outcomes(verdict: Verdict, outcome: Outcome, reason: str) -> None:
    result = report_on(Written(), checks=made_up(lambda x: verdict)).results[0]
    assert (result.outcome, result.reason) == (outcome, reason)


def test_a_check_that_raises_is_errored_and_the_others_go_on() -> None:
    def falls(x: PaddingInfluence) -> Verdict:
        raise ZeroDivisionError("no")

    report = report_on(Written(), "padding-mask-ignored", checks=made_up(falls))
    outcomes = {result.slug: result.outcome for result in report.results}
    assert outcomes == {"made-up": Outcome.ERRORED, "padding-mask-ignored": Outcome.PASSED}


def test_evidence_that_cannot_be_gathered_stops_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def falls(lab: Lab) -> PaddingInfluence:
        raise RuntimeError("our own fault")

    monkeypatch.setitem(gatherers.GATHERERS, PaddingInfluence, falls)
    report = report_on(Written(), "padding-mask-ignored", "layers-unregistered")
    outcomes = {result.slug: result for result in report.results}
    assert outcomes["padding-mask-ignored"].outcome is Outcome.ERRORED
    assert "our own fault" in outcomes["padding-mask-ignored"].reason
    assert outcomes["layers-unregistered"].outcome is Outcome.PASSED


def test_what_is_not_measured_is_undecided_with_what_settles_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(lab: Lab) -> PaddingInfluence:
        raise NotMeasured("too dark", "a lamp")

    monkeypatch.setitem(gatherers.GATHERERS, PaddingInfluence, cannot)
    result = report_on(Written(), "padding-mask-ignored").results[0]
    assert (result.outcome, result.reason, result.settle) == (Outcome.UNDECIDED, "too dark", "a lamp")


def test_a_fast_run_skips_what_trains() -> None:
    result = report_on(Written(), checks=made_up(lambda x: Passed(), TinyFit)).results[0]
    assert result.outcome is Outcome.SKIPPED
    assert "--fast" in result.reason


class Leaks(Written):
    """ids (B, S); mask (B, S) bool, True at real tokens."""

    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores.softmax(-1)


class LeaksAndCuts(Leaks):
    """ids (B, S); mask (B, S) bool, True at real tokens."""

    def heads(self, x: Tensor) -> Tensor:
        return super().heads(x.detach())


def test_a_fix_is_tried_before_it_is_suggested() -> None:
    model = Leaks()
    finding = report_on(model, "padding-mask-ignored").findings[0]
    assert finding.fix.confidence is Confidence.CONFIRMED
    assert finding.fix.before == finding.measured.value > 0
    assert finding.fix.after == 0.0


def test_two_faults_are_two_root_causes() -> None:
    roots = report_on(LeaksAndCuts()).roots()
    loud = {finding.slug for finding in roots if finding.severity is not Severity.NOTE}
    assert loud == {"padding-mask-ignored", "gradient-blocked"}


class Views(Written):
    """ids (B, S); mask (B, S) bool, True at real tokens."""

    def merge(self, x: Tensor) -> Tensor:
        x = x.transpose(1, 2)
        return x.view(x.shape[0], x.shape[1], -1)


class ViewsAndLeaks(Views):
    """ids (B, S); mask (B, S) bool, True at real tokens."""

    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores.softmax(-1)


def test_an_exception_is_one_finding_with_its_line() -> None:
    roots = report_on(Views()).roots()
    assert [finding.slug for finding in roots if finding.severity is not Severity.NOTE] == ["view-on-noncontiguous"]
    assert roots[0].where[0].code == "return x.view(x.shape[0], x.shape[1], -1)"
    assert roots[0].fix.confidence is Confidence.CONFIRMED


def test_a_crash_does_not_hide_the_next_fault() -> None:
    roots = report_on(ViewsAndLeaks()).roots()
    loud = {finding.slug for finding in roots if finding.severity is not Severity.NOTE}
    assert loud == {"view-on-noncontiguous", "padding-mask-ignored"}


class Deep(nn.Module):
    """ids (B, S); mask (B, S) bool, True at real tokens."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([Leaks(), Leaks()])

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.layers[0](ids, mask) + self.layers[1](ids, mask)


def test_one_fault_in_two_layers_is_one_finding_with_two_places() -> None:
    findings = report_on(Deep(), "padding-mask-ignored").findings
    assert len(findings) == 1
    assert {place.module for place in findings[0].where} >= {"layers.0", "layers.1"}


def test_the_same_seed_gives_the_same_report() -> None:
    def plain() -> TargetReport:
        report = report_on(LeaksAndCuts())
        report.cost = {}
        return report

    assert plain() == plain()


def test_a_severity_can_be_asked_for() -> None:
    model = Leaks()
    chosen = registry.select(CHECKS, ("padding-mask-ignored",), ())
    options = Options(fast=True, severity={"padding-mask-ignored": "note"})
    assert examine(Loaded("it", model, origin_of(model)), options, chosen).findings[0].severity is Severity.NOTE


def test_a_sound_model_is_judged_without_escalation() -> None:
    """What is measured only after a symptom costs a sound model nothing; the whole is bounded."""
    cost = report_on(Written()).cost
    assert "UnmaskedSites.trace" not in cost["by_evidence"]
    assert cost["by_evidence"]["Gradients.backward"] == 1
    assert (cost["forwards"], cost["backwards"]) == PINNED
