"""Runs as a user may meet them, for the tests of all renderers."""

from __future__ import annotations

import math
from typing import Any

from encdoctor.model import (
    Confidence,
    Finding,
    Fix,
    Limit,
    Measured,
    Outcome,
    Result,
    RuleText,
    Run,
    Severity,
    TargetReport,
    Where,
)

HOSTILE = (
    "</style></pre><script>alert(1)</script><img src=x onerror=alert(2)> & \" ' [bold red]markup[/] "
    "{{ 7*7 }} \x1b[31mred\x1b]8;;http://evil.example\x07\x00\x9b2J\u202egpj.exe\ud800 "
    "\r\n\t\u2028🙂 漢字 %s ${x}"
)

RULES = {
    "MSK002": RuleText(
        "padding-mask-inverted",
        "masks",
        Severity.ERROR,
        "Attention reads padding instead of text.",
        {
            "What it looks at": "Which input positions each output depends on,\nunder a padding mask.",
            "Why it matters": "The encoder never sees the text.\n\nIt learns nothing from it.",
            "How to fix it": "Pass the other:\n\n    scores.masked_fill(~keep, -torch.inf)\n\n- or flip it",
        },
        "https://encdoctor.example/rules/MSK002",
    ),
    "GRD003": RuleText(
        "gradient-vanishing", "gradients", Severity.ERROR, "Gradients die.", {"why": "They do."}
    ),
    "NUM001": RuleText("fp16-mask-overflow", "numerics", Severity.WARNING, "The fill overflows.", {}),
    "MSK009": RuleText("fully-padded-row-not-zero", "masks", Severity.NOTE, "Padding is averaged.", {}),
    "MSK003": RuleText("padding-mask-wrong-axis", "masks", Severity.ERROR, "The mask lies on queries.", {}),
    "FIT001": RuleText("cannot-overfit-tiny-set", "learning", Severity.ERROR, "It does not learn.", {}),
    "SHP002": RuleText("heads-split-wrong", "shapes", Severity.ERROR, "Heads mix tokens.", {}),
    "EMB004": RuleText(
        "embedding-scale-missing", "embeddings", Severity.WARNING, "Embeddings are small.", {}
    ),
}

SOURCE = [
    (39, "        scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)"),
    (40, "        if mask is not None:"),
    (
        41,
        "            scores = scores.masked_fill(mask[:, None, None, :], -1e9)  # True is real, see data",
    ),
    (42, "        weights = scores.softmax(dim=-1)"),
    (43, "        return weights @ v"),
]


def where(module: str = "layers.0.attention", line: int = 41) -> Where:
    return Where(module, "MultiHeadAttention", "models.py", line, SOURCE[2][1].strip(), list(SOURCE))


def finding(**changes: Any) -> Finding:
    """A confirmed error of MSK002, changed where it is asked for."""
    values: dict[str, Any] = {
        "id": "f1",
        "fingerprint": "3f9a",
        "rule": "MSK002",
        "slug": "padding-mask-inverted",
        "severity": Severity.ERROR,
        "message": "Attention reads padding instead of text.",
        "measured": Measured(0.312, "relative change of the output"),
        "limit": Limit(
            1e-9,
            "relative change of the output",
            "in float64, padding moves no real output of a sound encoder",
        ),
        "where": [where(f"layers.{i}.attention") for i in range(6)],
        "cause": "The mask is filled where it is True, and True is a real token, as its docstring says.",
        "fix": Fix(
            "Fill where the mask is False.",
            "-scores.masked_fill(mask[:, None, None, :], -1e9)\n"
            "+scores.masked_fill(~mask[:, None, None, :], -1e9)",
            Confidence.CONFIRMED,
            0.312,
            0.0,
        ),
        "explained_by": None,
    }
    return Finding(**(values | changes))


def influence(real: int = 5, size: int = 8, padding: float = 0.0) -> dict[str, Any]:
    def cell(i: int, j: int) -> float:
        if j >= real:
            return padding * (1 + 0.3 * math.sin(3 * i + j))
        return 0.8 if i == j else round(0.12 / (1 + abs(i - j)), 4)

    matrix = [[cell(i, j) for j in range(size)] for i in range(size)]
    return {"matrix": matrix, "real": real, "unit": "relative change", "expected": "full"}


def result(rule: str, outcome: Outcome, reason: str = "", settle: str = "") -> Result:
    return Result(rule, RULES[rule].slug, outcome, reason, settle)


def target_report(name: str, **changes: Any) -> TargetReport:
    values: dict[str, Any] = {
        "contract": {
            "input": "ids",
            "argument": "ids",
            "batch_first": True,
            "output": "",
            "mask": {"argument": "mask", "true": "keep", "why": "docstring", "certain": True},
        },
        "intent": [{"what": "causal", "value": False, "source": "default"}],
        "model": {"parameters": 1_234_567, "layers": 6, "heads": 8, "d_model": 64, "understood": True},
        "anatomy": {"sites": [{"module": "layers.0.attention", "scale": 0.354}]},
        "cost": {"forwards": 31, "backwards": 3},
        "results": [result(rule, Outcome.PASSED) for rule in RULES],
        "evidence": {"influence": influence(), "gradients": {}, "curve": {}},
    }
    return TargetReport(target=name, **(values | changes))


def run(*reports: TargetReport, **changes: Any) -> Run:
    values: dict[str, Any] = {
        "version": "0.1.0",
        "environment": {
            "python": "3.11.7",
            "torch": "2.6.0",
            "platform": "Linux",
            "device": "cpu",
            "seed": 0,
        },
        "rules": RULES,
        "reports": list(reports),
        "seconds": 4.31,
    }
    return Run(**(values | changes))


def healthy() -> Run:
    """A sound model: everything passed."""
    return run(target_report("models.py:SoundEncoder"))


def faulty() -> Run:
    """Two roots, of which one explains another finding, a note, and checks that ended in every way."""
    vanishing = finding(
        id="f2",
        rule="GRD003",
        slug="gradient-vanishing",
        message="Layer 0 gets 1,000,000 times less gradient than layer 5.",
        explained_by="f1",
    )
    overflow = finding(
        id="f3",
        rule="NUM001",
        slug="fp16-mask-overflow",
        severity=Severity.WARNING,
        message="The mask's fill value does not fit into float16.",
        measured=Measured(1e9, "magnitude of the fill value"),
        limit=Limit(65500.0, "magnitude of the fill value", "the largest finite float16"),
        where=[where(), where("layers.1.attention", 57)],
        cause="-1e9 is written into scores that are float16 under autocast.",
        fix=Fix("Fill with torch.finfo(scores.dtype).min.", None, Confidence.LIKELY),
    )
    note = finding(
        id="f4",
        rule="MSK009",
        slug="fully-padded-row-not-zero",
        severity=Severity.NOTE,
        message="A fully padded sample comes out as the average of its padding.",
    )
    results = [
        result("MSK002", Outcome.FAILED),
        result("GRD003", Outcome.FAILED),
        result("NUM001", Outcome.FAILED),
        result("MSK009", Outcome.PASSED),
        result("SHP002", Outcome.PASSED),
        result("MSK003", Outcome.UNDECIDED, "what True means is not documented", "--mask-true keep|drop"),
        result("FIT001", Outcome.ERRORED, "the training run raised RuntimeError: out of memory"),
        result("EMB004", Outcome.NOT_APPLICABLE, "the encoder takes no token ids"),
    ]
    return run(
        target_report(
            "models.py:TextEncoder",
            findings=[overflow, vanishing, finding(), note],
            results=results,
            evidence={"influence": influence(padding=0.31)},
            capped=["the influence matrix shows 8 of 13 positions"],
        )
    )


def crashing() -> Run:
    """A target that could not be judged, beside one that could."""
    sentence = "models.py has no class Encodr; did you mean Encoder?"
    return run(TargetReport("models.py:Encodr", failure=sentence), *healthy().reports, complete=False)


def hostile() -> Run:
    """User text that tries to break out of every format, and numbers that are none."""
    long = "x" * 1_000_000
    rotten = Where(HOSTILE, HOSTILE, HOSTILE, 41, HOSTILE, [(40, HOSTILE), (41, long), (42, "\tpass\x1b[2J")])
    broken = finding(
        message=HOSTILE + long,
        measured=Measured(math.nan, HOSTILE),
        limit=Limit(math.inf, HOSTILE, HOSTILE),
        where=[rotten, rotten, where()],
        cause=HOSTILE,
        fix=Fix(HOSTILE, "+" + HOSTILE + "\n-" + long, Confidence.POSSIBLE, -math.inf, math.nan),
    )
    consequence = finding(id="f2", message=HOSTILE, explained_by="f1")
    orphan = finding(id="f3", message=HOSTILE, severity=Severity.NOTE, explained_by="nobody", where=[rotten])
    matrix = [[math.nan, math.inf, 0.0], [1e-300, 1.0, 0.5]]
    poisoned = target_report(
        HOSTILE,
        contract={
            "input": "ids",
            "argument": HOSTILE,
            "output": HOSTILE,
            "mask": {"true": "keep", "why": HOSTILE},
        },
        intent=[{"what": HOSTILE, "value": HOSTILE, "source": HOSTILE}],
        anatomy={HOSTILE: HOSTILE},
        findings=[broken, consequence, orphan],
        results=[Result("MSK002", HOSTILE, outcome, HOSTILE, HOSTILE) for outcome in Outcome],
        evidence={"influence": {"matrix": matrix, "real": 2, "unit": HOSTILE, "expected": "full"}},
        capped=[HOSTILE],
    )
    rule = RuleText(HOSTILE, HOSTILE, Severity.ERROR, HOSTILE, {HOSTILE: HOSTILE}, "javascript:alert(3)")
    return run(
        poisoned,
        TargetReport(HOSTILE, failure=HOSTILE),
        rules={"MSK002": rule},
        environment={"torch": HOSTILE},
    )


ALL = {"healthy": healthy, "faulty": faulty, "crashing": crashing, "hostile": hostile}
