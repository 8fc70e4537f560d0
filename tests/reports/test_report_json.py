from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import report_samples as samples
from jsonschema import Draft202012Validator

from encdoctor.model import Run
from encdoctor.reports import json as report_json

SCHEMA = json.loads((Path(report_json.__file__).parent / "schema.json").read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)


def saved(run: Run) -> Any:
    return json.loads(report_json.dump(run))


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", samples.ALL)
def test_every_report_fits_the_schema(name: str) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(saved(samples.ALL[name]()))] == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data.pop("complete"),
        lambda data: data.update(schema="encdoctor/run-2"),
        lambda data: data["reports"][0].update(extra=1),
        lambda data: data["reports"][0]["findings"][0].update(severity="fatal"),
        lambda data: data["reports"][0]["findings"][0]["where"][0].update(class_name="X"),
        lambda data: data["reports"][0]["findings"][0]["measured"].update(value="huge"),
        lambda data: data["reports"][0]["findings"][0]["where"][0]["excerpt"][0].append("more"),
        lambda data: data["reports"][0]["results"][0].update(outcome="fine"),
        lambda data: data["reports"][0]["evidence"]["influence"].pop("real"),
    ],
)
def test_the_schema_refuses_what_the_format_is_not(spoil: Any) -> None:
    data = saved(samples.faulty())
    spoil(data)
    assert not VALIDATOR.is_valid(data)


@pytest.mark.parametrize("name", ["healthy", "faulty", "crashing"])
def test_what_was_saved_is_loaded(name: str) -> None:
    run = samples.ALL[name]()
    run.reports[-1].evidence = {}  # rounded on the way
    assert report_json.load(report_json.dump(run)) == run


@pytest.mark.parametrize("name", samples.ALL)
def test_saving_again_gives_the_same_bytes(name: str) -> None:
    text = report_json.dump(samples.ALL[name]())
    assert report_json.dump(report_json.load(text)) == text
    assert report_json.dump(samples.ALL[name]()) == text


def test_the_order_of_a_mapping_does_not_show_but_that_of_sections_does() -> None:
    run = samples.healthy()
    turned = replace(
        run, environment=dict(reversed(run.environment.items())), rules=dict(reversed(run.rules.items()))
    )
    assert report_json.dump(turned) == report_json.dump(run)
    loaded = report_json.load(report_json.dump(run))
    assert list(loaded.rules["MSK002"].sections) == list(run.rules["MSK002"].sections)


def test_the_keys_are_those_that_scripts_hold_on_to() -> None:
    data = saved(samples.faulty())
    finding = data["reports"][0]["findings"][2]
    assert next(iter(data)) == "schema"
    assert finding["where"][0]["class"] == "MultiHeadAttention"
    assert finding["where"][0]["excerpt"][0][0] == 39
    assert finding["fix"]["confidence"] == "confirmed"
    assert set(finding["limit"]) == {"value", "because"}
    assert data["reports"][0]["results"][5]["outcome"] == "undecided"


def test_numbers_have_three_digits_and_are_strict() -> None:
    run = samples.healthy()
    values = [0.123456, -0.0, 1e-12, math.nan, math.inf, -math.inf, 123456, True]
    run.reports[0].anatomy = {"values": values}
    text = report_json.dump(run)
    data = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not strict JSON"))
    kept = data["reports"][0]["anatomy"]["values"]
    assert kept == [0.123, 0.0, 1e-12, "nan", "inf", "-inf", 123456, True]
    assert math.copysign(1, kept[1]) == 1


def test_not_finite_measurements_come_back_as_numbers() -> None:
    finding = report_json.load(report_json.dump(samples.hostile())).reports[0].findings[0]
    assert math.isnan(finding.measured.value) and finding.limit.value == math.inf
    assert finding.fix.before == -math.inf
    assert finding.limit.unit == finding.measured.unit


def test_the_file_is_ascii_without_half_characters() -> None:
    text = report_json.dump(samples.hostile())
    assert text.isascii()
    json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8")  # raises on a lone surrogate


def test_what_is_no_plain_data_is_named() -> None:
    run = samples.healthy()
    run.reports[0].anatomy = {"sites": [object()]}
    with pytest.raises(TypeError, match=r"reports\[0\]\.anatomy\.sites\[0\] holds a object"):
        report_json.dump(run)


def damaged(path: list[Any], value: Any) -> str:
    data = saved(samples.faulty())
    part = data
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return json.dumps(data)


FIRST = ["reports", 0, "findings", 0]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no encdoctor report: it is not JSON"),
        ("hello", "no encdoctor report: it is not JSON"),
        ('{"schema": NaN}', "NaN is no JSON number"),
        ("[" * 100_000, "no encdoctor report"),
        ("[]", "no encdoctor report: it is JSON, but has no"),
        ('{"schema": 1}', "no encdoctor report: it is JSON, but has no"),
        ('{"schema": "other/1"}', "no encdoctor report: it is JSON, but has no"),
        ('{"schema": "encdoctor/run-9", "version": "3.1.0"}', "render it with encdoctor 3.1.0"),
        ('{"schema": "encdoctor/run-1"}', "damaged at its root: 'complete' is missing"),
        (damaged(["extra"], 1), "damaged at its root: 'extra' is unknown"),
        (damaged(["complete"], 1), "damaged at complete: 1 stands where a true or false"),
        (damaged(["reports"], {}), "damaged at reports: {} stands where a list"),
        (damaged([*FIRST, "severity"], "fatal"), '"fatal" is none of error, warning, note'),
        (damaged([*FIRST, "measured", "value"], "x"), r'findings\[0\].measured.value: "x" is no number'),
        (damaged([*FIRST, "measured", "value"], True), "true is no number"),
        (damaged([*FIRST, "where", 0, "line"], False), "false stands where a whole number"),
        (damaged([*FIRST, "where", 0, "excerpt"], [[1]]), "2 items are expected, not 1"),
        (damaged([*FIRST, "fix"], None), "null stands where a mapping"),
    ],
)
def test_one_sentence_says_what_is_wrong_with_a_file(text: str, sentence: str) -> None:
    with pytest.raises(report_json.UnreadableReport, match=sentence) as caught:
        report_json.load(text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300
