"""What people say they see leads to rules that exist."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from encdoctor import registry
from encdoctor.reports.symptoms import SYMPTOMS, Symptom, matching, ranked_rules


@pytest.mark.parametrize("symptom", SYMPTOMS, ids=lambda symptom: symptom.seen[:30])
def test_every_symptom_leads_to_a_rule(symptom: Symptom) -> None:
    known = {check.rule.slug for check in registry.discover().values()}
    assert symptom.rules[0] in known
    assert all(re.compile(pattern) for pattern in symptom.patterns)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("loss is NaN after the first batch", "fully-padded-row-nan"),
        ("RuntimeError: value cannot be converted to type c10::Half without overflow", "fp16-mask-overflow"),
        ("view size is not compatible with input tensor's size and stride", "view-on-noncontiguous"),
        ("The size of tensor a (5) must match the size of tensor b (4)", "mask-rank-broadcast"),
        ("the same sentence gives different results depending on the batch", "padding-mask-ignored"),
        ("word order does not matter", "position-missing"),
        (
            "one of the variables needed for gradient computation has been modified by an inplace operation",
            "inplace-breaks-backward",
        ),
        ("optimizer got an empty parameter list", "layers-unregistered"),
        ("Expected to have finished reduction in the prior iteration before starting a new one.", "unused-parameters"),
        ("my loss does not go down", "cannot-overfit-tiny-set"),
        ("model.eval() predicts the same for everything", "train-eval-mismatch"),
    ],
)
def test_reports_are_recognised(text: str, rule: str) -> None:
    assert rule in ranked_rules(matching(text))[:4]


def test_what_is_not_known_matches_nothing() -> None:
    assert matching("the weather is nice") == []


def _run(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "encdoctor", *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)


def test_explain_reads_a_traceback_from_standard_input() -> None:
    done = _run("explain", "-", text="Traceback …\nRuntimeError: view size is not compatible with input tensor's size")
    assert done.returncode == 0
    assert "SHP001 view-on-noncontiguous" in done.stdout


def test_explain_of_an_unknown_word_names_the_nearest_rule() -> None:
    done = _run("explain", "padding-mask-ignord")
    assert done.returncode == 2
    assert "padding-mask-ignored" in done.stderr


def test_symptoms_lists_all() -> None:
    done = _run("symptoms")
    assert done.returncode == 0
    assert all(symptom.seen.split(",")[0][:40] in done.stdout for symptom in SYMPTOMS[:3])
