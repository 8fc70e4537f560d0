from __future__ import annotations

import io
import unicodedata

import pytest
import report_samples as samples
from rich.cells import cell_len
from rich.console import Console

from encdoctor.model import Outcome, Run, TargetReport
from encdoctor.reports import console as report_console
from encdoctor.reports import wording


def printed(
    run: Run, width: int = 80, verbosity: int = 0, encoding: str = "utf-8", terminal: bool = False
) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, newline="")
    console = Console(
        file=file, width=width, force_terminal=terminal, color_system="truecolor" if terminal else None
    )
    report_console.render(run, console, verbosity)
    file.flush()
    return raw.getvalue().decode(encoding)


GOLDEN = """\
models.py:TextEncoder  1 error, 1 warning, 1 note, 1 undecided, 1 could not run
  call       ids: token ids, batch first · mask: True is a real token
             (docstring) · hidden states: the output itself

error MSK002 padding-mask-inverted
  Attention reads padding instead of text.

  models.py:41 in layers.0.attention (MultiHeadAttention)
    39 │ scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
    40 │ if mask is not None:
  ❯ 41 │     scores = scores.masked_fill(mask[:, None, None, :], -1e9)  # True
         is real, see data
    42 │ weights = scores.softmax(dim=-1)
    43 │ return weights @ v
  also models.py:41 in layers.1.attention, layers.2.attention,
  layers.3.attention and 2 more

  measured   0.312 relative change of the output
  limit      1e-9 (in float64, padding moves no real output of a sound encoder)
  cause      The mask is filled where it is True, and True is a real token, as
             its docstring says.
  fix        Fill where the mask is False.
             -scores.masked_fill(mask[:, None, None, :], -1e9)
             +scores.masked_fill(~mask[:, None, None, :], -1e9)
             confirmed, tried on a copy of the model: 0.312 → 0
  explains   GRD003 gradient-vanishing: Layer 0 gets 1,000,000 times less
             gradient than layer 5.

warning NUM001 fp16-mask-overflow
  The mask's fill value does not fit into float16.
"""

TAIL = """\
  note       MSK009 fully-padded-row-not-zero: A fully padded sample comes out
             as the average of its padding. (models.py:41)

  passed     2 checks
  undecided  MSK003 padding-mask-wrong-axis: what True means is not documented
             to settle it: --mask-true keep|drop
  errored    FIT001 cannot-overfit-tiny-set: the training run raised
             RuntimeError: out of memory
  other      1 did not apply (-v names them)
  shortened  the influence matrix shows 8 of 13 positions

encdoctor explain MSK002 tells more
encdoctor 0.1.0 · python 3.11.7 · torch 2.6.0 · Linux · cpu · seed 0 · 4.31 s
"""


def test_the_page_of_a_faulty_model() -> None:
    page = printed(samples.faulty())
    assert page.startswith(GOLDEN)
    assert page.endswith(TAIL)


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("verbosity", [0, 1])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("name", samples.ALL)
def test_no_line_is_longer_than_the_terminal_is_wide(
    name: str, width: int, verbosity: int, encoding: str
) -> None:
    for line in printed(samples.ALL[name](), width, verbosity, encoding).split("\n"):
        assert cell_len(line) <= width
        assert line == line.rstrip()


@pytest.mark.parametrize("verbosity", [-1, 0, 1])
@pytest.mark.parametrize("name", samples.ALL)
def test_nothing_in_the_text_can_steer_a_terminal(name: str, verbosity: int) -> None:
    page = printed(samples.ALL[name](), verbosity=verbosity)
    assert {unicodedata.category(char) for char in page} & {"Cc", "Cf", "Cs", "Zl", "Zp"} == {"Cc"}
    assert {char for char in page if unicodedata.category(char) == "Cc"} == {"\n"}


def test_markup_in_the_text_is_shown_and_not_obeyed() -> None:
    page = printed(samples.hostile(), width=400, terminal=True)
    assert "[bold red]markup[/]" in page
    assert "\x1b]8" not in page and "\x1b[2J" not in page  # neither links nor clearing: only our colours


def test_colours_on_a_terminal_and_none_under_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1;31m" in printed(samples.faulty(), terminal=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "31m" not in printed(samples.faulty(), terminal=True)


def test_a_terminal_without_unicode_gets_ascii() -> None:
    page = printed(samples.faulty(), encoding="ascii")
    assert "  > 41 |     scores" in page
    assert "0.312 -> 0" in page
    assert "token ids, batch first - mask:" in page
    assert "\\u6f22" in printed(samples.hostile(), encoding="ascii")  # the user's own letters are spelt out


def test_a_healthy_model_takes_few_lines() -> None:
    lines = printed(samples.healthy()).splitlines()
    assert lines[0] == "models.py:SoundEncoder  healthy"
    assert "  passed     8 checks" in lines
    assert len(lines) <= 8


def test_the_short_form_is_a_line_for_the_verdict_and_one_for_each_cause() -> None:
    assert printed(samples.faulty(), verbosity=-1).splitlines() == [
        "models.py:TextEncoder  1 error, 1 warning, 1 note, 1 undecided, 1 could not run",
        "models.py:41: error MSK002 padding-mask-inverted: Attention reads padding instead of text.",
        "models.py:41: warning NUM001 fp16-mask-overflow: The mask's fill value does not fit into float16.",
        "models.py:41: note MSK009 fully-padded-row-not-zero: A fully padded sample "
        "comes out as the average of its padding.",
    ]


def test_the_long_form_names_every_check() -> None:
    page = printed(samples.faulty(), width=120, verbosity=1)
    assert "passed     2 checks: MSK009 fully-padded-row-not-zero, SHP002 heads-split-wrong" in page
    assert "n/a        EMB004 embedding-scale-missing: the encoder takes no token ids" in page
    assert "intent     causal: no (default)" in page


def test_a_failure_is_one_sentence_and_the_others_are_still_reported() -> None:
    page = printed(samples.crashing(), width=120)
    assert page.startswith(
        "models.py:Encodr  could not be judged: models.py has no class Encodr; did you mean Encoder?\n"
        "models.py:SoundEncoder  healthy\n"
    )
    assert "passed     8 checks" in page
    assert "The run was stopped early: this report is incomplete.\n" in page


def test_a_guessed_contract_says_how_to_override_it() -> None:
    run = samples.healthy()
    assert "--mask-true" not in printed(run)
    run.reports[0].contract["mask"]["certain"] = False
    assert "(docstring, not certain)" in printed(run, width=120)
    assert "override   --input, --mask-arg, --mask-true" in printed(run)


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ([Outcome.PASSED, Outcome.NOT_APPLICABLE], "healthy"),
        ([Outcome.PASSED, Outcome.UNDECIDED], "no fault found, 1 undecided"),
        ([Outcome.PASSED, Outcome.ERRORED], "no fault found, 1 could not run"),
        ([Outcome.SKIPPED], "nothing was judged"),
        ([], "nothing was judged"),
    ],
)
def test_only_what_was_judged_in_full_is_healthy(outcomes: list[Outcome], verdict: str) -> None:
    results = [samples.result("MSK002", outcome) for outcome in outcomes]
    assert wording.verdict(TargetReport("t", results=results)) == verdict


def test_no_finding_drops_out_when_explanations_are_chained_circular_or_missing() -> None:
    made = {"a": None, "b": "a", "c": "b", "d": "nobody", "e": "f", "f": "e"}
    findings = [samples.finding(id=name, explained_by=cause) for name, cause in made.items()]
    folded = {
        root.finding.id: [f.id for f in root.explains]
        for root in wording.roots(TargetReport("t", findings=findings))
    }
    assert folded == {"a": ["b", "c"], "d": [], "e": [], "f": []}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.31249, "0.312"),
        (1e-9, "1e-9"),
        (-1.5e-12, "-1.5e-12"),
        (65504, "65,500"),
        (-2500.0, "-2,500"),
        (1e9, "1e9"),
        (0.0, "0"),
        (12, "12"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        ("nan", "nan"),
    ],
)
def test_numbers_are_short(value: object, text: str) -> None:
    assert wording.number(value) == text


def test_the_catalogue_is_a_table_by_family() -> None:
    file = io.StringIO()
    report_console.render_rules(samples.RULES, Console(file=file, width=80))
    lines = file.getvalue().splitlines()
    row = lines.index("masks") + 1
    assert lines[row : row + 2] == [
        "  MSK002  error    padding-mask-inverted      Attention reads padding instead of",
        "                                              text.",
    ]
    assert lines[-1].startswith("8 rules")
    assert max(map(cell_len, lines)) <= 80


def test_an_explanation_flows_prose_and_keeps_code() -> None:
    file = io.StringIO()
    report_console.render_explanation("MSK002", samples.RULES["MSK002"], Console(file=file, width=80))
    page = file.getvalue()
    assert page.startswith(
        "MSK002 padding-mask-inverted  error, masks\n\nAttention reads padding instead of text.\n"
    )
    assert "What it looks at\n  Which input positions each output depends on, under a padding mask.\n" in page
    assert "\n      scores.masked_fill(~keep, -torch.inf)\n" in page
    assert page.endswith("https://encdoctor.example/rules/MSK002\n")
