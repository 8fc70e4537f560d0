from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import matplotlib
import pytest
import report_samples as samples

from encdoctor.reports import html
from encdoctor.reports import json as report_json
from encdoctor.reports.plots import influence

SVG = "{http://www.w3.org/2000/svg}"
LINKS = ("href", "src", "action", "data", "poster", "srcset", "{http://www.w3.org/1999/xlink}href")


@pytest.fixture(scope="module", params=samples.ALL)
def page(request: pytest.FixtureRequest) -> str:
    return html.render(samples.ALL[request.param]())


def tree(page: str) -> ET.Element:
    """Well-formed XML is well-formed HTML whose every element was closed where it was meant to be."""
    return ET.fromstring(page)


class Tags(HTMLParser):
    """The page as a browser's tokeniser reads it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def test_the_page_is_well_formed_and_its_ids_are_unique(page: str) -> None:
    ids = [element.get("id") for element in tree(page).iter() if element.get("id")]
    assert page.startswith("<!DOCTYPE html>")
    assert len(ids) == len(set(ids))


def test_no_script_and_no_handler(page: str) -> None:
    seen = Tags(page).seen
    assert not {tag for tag, _ in seen} & {"script", "iframe", "object", "embed", "base", "form", "link"}
    assert not [name for _, attributes in seen for name in attributes if name.startswith("on")]


def test_nothing_is_fetched(page: str) -> None:
    for element in tree(page).iter():
        for name in LINKS:
            target = element.get(name, "#")
            allowed = ("#", "https://") if element.tag == "a" else ("#", "data:image/png;base64,")
            assert target.startswith(allowed)
    assert not re.search(r"@import|url\((?!#)", page)
    policy = next(
        a["content"] for tag, a in Tags(page).seen if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None and policy.startswith("default-src 'none';")


def test_the_page_has_no_control_or_invisible_characters(page: str) -> None:
    assert not re.search(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ud800-\udfff]", page
    )
    page.encode("utf-8")


def test_user_text_is_shown_as_it_is() -> None:
    root = tree(html.render(samples.hostile()))
    message = next(root.iter("h3")).text or ""
    assert message.startswith("</style></pre><script>alert(1)</script>")
    assert "{{ 7*7 }}" in message and "more characters)" in message


def test_a_rule_can_only_link_to_the_web() -> None:
    assert "javascript:" not in html.render(samples.hostile())
    assert '<a href="https://encdoctor.example/rules/MSK002">' in html.render(samples.faulty())


def test_long_text_does_not_make_a_long_page() -> None:
    assert len(html.render(samples.hostile())) < 100_000


@pytest.mark.parametrize("name", samples.ALL)
def test_the_page_is_the_same_from_the_saved_report(name: str) -> None:
    run = samples.ALL[name]()
    assert html.render(report_json.load(report_json.dump(run))) == html.render(run)


def test_the_order_is_that_of_the_console() -> None:
    page = html.render(samples.faulty())
    said = [
        "models.py:TextEncoder</p>",
        "1 error",
        "token ids, batch first",
        "MSK002",
        "0.312 relative",
        "1e-9 (in",
    ]
    said += [
        "masked_fill(~mask",
        "confirmed, tried",
        "GRD003",
        "NUM001",
        "Notes",
        "Which input",
        "What could not",
    ]
    said += ["--mask-true keep|drop", "Passed: 2 checks", "Did not apply: 1 check", "Shortened", "seed 0"]
    body = page[page.index("<main>") :]
    places = [body.find(text) for text in said]
    assert -1 not in places and places == sorted(places)


def test_the_line_of_the_fault_is_marked() -> None:
    root = tree(html.render(samples.faulty()))
    marked = [element for element in root.iter("span") if element.get("class") == "row here"]
    assert "".join(marked[0].itertext()).startswith("41    scores = scores.masked_fill")


def test_several_targets_have_an_index_and_each_its_part() -> None:
    root = tree(html.render(samples.crashing()))
    links = [link.get("href") for link in next(root.iter("nav")).iter("a")]
    parts = [element.get("id") for element in root.iter("div")]
    assert links == [f"#{part}" for part in parts] == ["#target-1", "#target-2"]


# ---- the plot ----------------------------------------------------------------------------------------------


def test_the_plot_says_what_it_shows() -> None:
    leaking = influence(samples.influence(padding=0.31))
    sound = influence(samples.influence())
    assert leaking is not None and sound is not None
    assert leaking.says.startswith("Padding moves real outputs by up to 0.4")
    assert (
        sound.says
        == "Padding moves no real output; real positions move real outputs by up to 0.8 (relative change)."
    )
    drawing = ET.fromstring(sound.svg)
    assert drawing.get("role") == "img" and sound.says in (drawing.get("aria-label") or "")
    texts = ["".join(text.itertext()) for text in drawing.iter(f"{SVG}text")]
    assert {"padding", "relative change", "output position"} <= set(texts)


def test_the_padding_is_outlined_only_where_there_is_some() -> None:
    full, padded = influence(samples.influence(real=8)), influence(samples.influence(real=5))
    assert full is not None and padded is not None
    assert "stroke-dasharray" in padded.svg and "stroke-dasharray" not in full.svg
    assert "There is no padding here" in full.says and "padding" not in full.reading


def test_the_plot_follows_the_page_into_dark_mode() -> None:
    plot = influence(samples.influence())
    assert plot is not None
    assert "currentColor" in plot.svg and "#000000" not in plot.svg and "<style" not in plot.svg


def settings() -> dict[str, object]:
    """Matplotlib's global settings; reading the backend would choose one."""
    return {name: matplotlib.rcParams[name] for name in matplotlib.rcParams if name != "backend"}


def test_the_same_plot_has_the_same_bytes_and_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    first = influence(samples.influence())
    monkeypatch.setitem(matplotlib.rcParams, "font.size", 30.0)  # a user's own setting
    before = settings()
    assert influence(samples.influence()) == first
    assert settings() == before


@pytest.mark.parametrize("matrix", [[], [[]], [[1.0], [1.0, 2.0]]])
def test_no_plot_without_a_matrix(matrix: list[list[float]]) -> None:
    assert influence({"matrix": matrix, "real": 1, "unit": "", "expected": "full"}) is None


@pytest.mark.parametrize(
    ("matrix", "says"),
    [
        ([[0.0, 0.0], [0.0, 0.0]], "real positions move real outputs by up to 0."),
        ([["nan", 0.0], [0.0, "inf"]], "Some outputs are not finite."),
        ([[5e-324, 1e300], [1e-9, 0.0]], "up to 1e300"),
        ([[0.5]], "up to 0.5"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_odd_matrices_are_drawn(matrix: list[list[float]], says: str) -> None:
    plot = influence({"matrix": matrix, "real": len(matrix), "unit": "", "expected": "causal"})
    assert plot is not None and says in plot.says
    ET.fromstring(plot.svg)


def test_a_big_matrix_stays_small_on_the_page() -> None:
    run = samples.run(samples.target_report("m:E", evidence={"influence": samples.influence(40, 64, 1e-3)}))
    assert len(html.render(run)) < 200_000
    assert len(json.loads(report_json.dump(run))["reports"][0]["evidence"]["influence"]["matrix"]) == 64


def test_dollars_in_a_unit_are_no_formula() -> None:
    plot = influence(samples.influence() | {"unit": r"$\frac$"})
    assert plot is not None and r"$\frac$</text>" in plot.svg
