"""Plots as inline SVG, drawn by matplotlib's objects alone: no pyplot, no display, the same bytes each time.

Ink (text, ticks, frames) is written as `currentColor`, so that a plot follows the page into dark mode.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import quoteattr

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from encdoctor.reports.wording import number, one_line

_INK = "#010203"  # a colour that nothing else has: it becomes currentColor
_BLANK = "#f4f4f1"
_BROKEN = "#d6336c"
_PADDING = "#d9480f"
_DECADES = 1e-12  # of the largest value; what is smaller is drawn in the palest colour


@dataclass(frozen=True)
class Plot:
    """A picture and the words that go with it: `says` is what it shows here, `reading` is how to read it."""

    svg: str
    title: str
    says: str
    reading: str


def influence(evidence: Mapping[str, Any], key: str = "influence") -> Plot | None:
    """The influence matrix, or None where there is none. `key` keeps the ids of a page's plots apart."""
    matrix = [[float(cell) for cell in row] for row in evidence.get("matrix", [])]
    if not matrix or not matrix[0] or any(len(row) != len(matrix[0]) for row in matrix):
        return None
    real = min(int(evidence.get("real", len(matrix[0]))), len(matrix[0]))
    unit = one_line(evidence.get("unit", ""), 60)
    says = _says(matrix, real, unit)
    title = "Which input moves which output"
    alt = f"{title}: matrix of {len(matrix)} outputs by {len(matrix[0])} inputs. {says}"
    with _style(key):
        figure = Figure(figsize=(4.6, 3.9), layout="constrained", facecolor="none")  # legible on a phone
        _draw_influence(figure, matrix, real, unit)
        svg = _svg(figure, key, alt)
    return Plot(svg, title, says, _reading(matrix, real, str(evidence.get("expected", "full"))))


# ---- the influence matrix ----------------------------------------------------------------------------------


def _draw_influence(figure: Figure, matrix: Sequence[Sequence[float]], real: int, unit: str) -> None:
    axes = figure.add_subplot()
    axes.set_facecolor(_BLANK)
    image = _draw_values(axes, matrix)
    _draw_broken(axes, matrix)
    _outline_padding(axes, len(matrix), len(matrix[0]), real)
    axes.set_xlabel("input position whose content is changed")
    axes.set_ylabel("output position")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    if image is not None:
        _scale(figure, axes, image, unit)


def _scale(figure: Figure, axes: Axes, image: AxesImage, unit: str) -> None:
    bottom, top = image.get_clim()
    steps = (1.0,) if top / bottom > 100 else (1.0, 2.0, 5.0)
    ticks, labels = LogLocator(subs=steps, numticks=8), FuncFormatter(lambda value, _: number(value))
    bar = figure.colorbar(image, ax=axes, shrink=0.85, ticks=ticks, format=labels)
    bar.minorticks_off()
    bar.set_label(unit)


def _draw_values(axes: Axes, matrix: Sequence[Sequence[float]]) -> AxesImage | None:
    """Cells that move, on a logarithmic scale; zeros stay blank."""
    moving = [[cell if 0 < cell < math.inf else math.nan for cell in row] for row in matrix]
    values = [cell for row in moving for cell in row if cell > 0]
    axes.set_xlim(-0.5, len(matrix[0]) - 0.5)
    axes.set_ylim(len(matrix) - 0.5, -0.5)
    axes.set_aspect("equal")
    if not values:
        return None
    top = max(values)
    bottom = max(min(values), top * _DECADES)
    norm = LogNorm(min(bottom, top / 10), top, clip=True)
    colours = matplotlib.colormaps["viridis_r"].with_extremes(bad=(0, 0, 0, 0))
    return axes.imshow(moving, norm=norm, cmap=colours, interpolation="none", aspect="equal")


def _draw_broken(axes: Axes, matrix: Sequence[Sequence[float]]) -> None:
    for i, row in enumerate(matrix):
        for j, cell in enumerate(row):
            if not math.isfinite(cell):
                axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, facecolor=_BROKEN, edgecolor="none"))


def _outline_padding(axes: Axes, outputs: int, inputs: int, real: int) -> None:
    if real >= inputs:
        return
    box = Rectangle((real - 0.5, -0.5), inputs - real, min(real, outputs), fill=False, edgecolor=_PADDING)
    box.set(linewidth=1.8, linestyle=(0, (3, 1.5)), clip_on=False)
    axes.add_patch(box)
    middle = (real + inputs - 1) / 2
    axes.text(middle, -0.8, "padding", ha="center", va="bottom")


def _says(matrix: Sequence[Sequence[float]], real: int, unit: str) -> str:
    inside = max((cell for row in matrix[:real] for cell in row[:real]), default=0.0)
    padding = max((cell for row in matrix[:real] for cell in row[real:]), default=0.0)
    if not all(math.isfinite(cell) for row in matrix[:real] for cell in row):
        return "Some outputs are not finite."
    measured = f"real positions move real outputs by up to {number(inside)}" + (f" ({unit})" if unit else "")
    if real >= len(matrix[0]):
        return f"There is no padding here; {measured}."
    leak = f"moves real outputs by up to {number(padding)}" if padding else "moves no real output"
    return f"Padding {leak}; {measured}."


_EXPECTED = {
    "full": "A sound encoder has colour everywhere between real positions",
    "causal": "A sound causal encoder is blank above the diagonal and has colour below it",
    "local": "A sound local encoder has a band of colour along the diagonal",
}


def _reading(matrix: Sequence[Sequence[float]], real: int, expected: str) -> str:
    broken = any(not math.isfinite(cell) for row in matrix for cell in row)
    return (
        "How to read it: a cell's colour says how far the output in its row moves when the content of the "
        "input in its column is changed; blank is exactly zero"
        + (", red is not a finite number. " if broken else ". ")
        + _EXPECTED.get(expected, _EXPECTED["full"])
        + (", and is blank inside the outlined padding." if real < len(matrix[0]) else ".")
    )


# ---- drawing -----------------------------------------------------------------------------------------------


@contextmanager
def _style(key: str) -> Iterator[None]:
    """Matplotlib's defaults, whatever the user's matplotlibrc says, with our own; restored at the end."""
    inks = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    ours: Any = dict.fromkeys(inks, _INK) | {"font.size": 9, "axes.linewidth": 0.5}
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            ours | {"svg.hashsalt": key, "svg.fonttype": "none", "text.parse_math": False}
        )
        yield


def _svg(figure: Figure, key: str, alt: str) -> str:
    """The figure as an SVG element for a page: no prologue, no date, the page's font, ids of its own."""
    target = io.StringIO()
    canvas: Any = FigureCanvasSVG(figure)
    canvas.print_svg(target, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    drawing = target.getvalue()
    drawing = drawing[drawing.index("<svg") :].replace(_INK, "currentColor")
    drawing = re.sub(r"<style.*?</style>", "", drawing, flags=re.DOTALL)  # it would style the whole page
    drawing = re.sub(r"font-family: [^;\"]*", "font-family: inherit", drawing)
    drawing = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{key}-", drawing)
    return drawing.replace("<svg", f'<svg role="img" aria-label={quoteattr(alt)}', 1)
