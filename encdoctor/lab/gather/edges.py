"""Calls the encoder with one sample, one position, and lengths of other parity."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator
from dataclasses import replace

from torch import Tensor, nn

from encdoctor.evidence.edges import Edge, EdgeShapes, TrimmedOutput
from encdoctor.evidence.runs import Raised
from encdoctor.lab.lab import Lab, Ran
from encdoctor.lab.outputs import pick
from encdoctor.lab.situations import Situation
from encdoctor.lab.trace import Node, Trace
from encdoctor.model import Place

# torch's words where an input is shorter than a kernel
TOO_SHORT = re.compile(
    r"[Kk]ernel size can't be greater|Output size is too small|smaller than kernel|too small|"
    r"must be less than the corresponding input dimension|non-zero size|"
    r"maximum size for tensor at dimension|expected a non-empty|must be at least"
)


def gather_edges(lab: Lab) -> EdgeShapes:
    """A small grid over batch and length, in the model's own dtype, with the mask."""
    usual = replace(lab.full, dtype=lab.own_dtype)
    base = _shape(lab, lab.run(usual))
    if base is None:
        return EdgeShapes((), 0, "the usual call does not run")
    failing, tried = [], 0
    for batch, length in _sizes(lab):
        situation = replace(usual, lengths=(length,) * batch, length=length)
        ran = lab.run(situation)
        tried += 1
        edge = _edge(lab, situation, ran, _expected(lab, base, usual, situation))
        if edge.fails:
            failing.append(edge)
    return EdgeShapes(tuple(sorted(failing, key=lambda e: (e.batch * max(e.length, 1), e.batch))), tried)


def _sizes(lab: Lab) -> Iterator[tuple[int, int]]:
    length = lab.full.length
    yield 1, length
    if lab.contract.has_sequence and not lab.contract.settings.get("length"):
        yield 2, 1
        yield 1, 1
        yield 2, length - 1


def _shape(lab: Lab, ran: Ran) -> tuple[int, ...] | None:
    if ran.output is None:
        return None
    raw = pick(ran.raw, lab.contract.output)
    return tuple(raw.shape)


def _expected(
    lab: Lab, base: tuple[int, ...], usual: Situation, situation: Situation
) -> tuple[int | None, ...]:
    """The usual output's shape with batch and length exchanged; None where a length is not carried over as it is."""
    axes = lab.contract.output_axes
    if len(axes) != len(base):
        return base
    expected: list[int | None] = []
    for axis, size in zip(axes, base, strict=True):
        if axis == "B":
            expected.append(situation.batch)
        elif axis == "S":
            expected.append(size - usual.length + situation.length if size >= usual.length else None)
        else:
            expected.append(size)
    return tuple(expected)


def _edge(lab: Lab, situation: Situation, ran: Ran, expected: tuple[int | None, ...]) -> Edge:
    length = situation.length if lab.contract.has_sequence else 0
    shape = _shape(lab, ran)
    if ran.raised is None and shape is not None:
        fits = len(shape) == len(expected) and all(e in (None, s) for s, e in zip(shape, expected, strict=False))
        if fits:
            return Edge(situation.batch, length, None)
        wanted = tuple(-1 if e is None else e for e in expected)
        squeezes = _squeezes(lab, situation)
        return Edge(situation.batch, length, None, shape, wanted, squeezes=squeezes[0], squeezed_at=squeezes[1])
    raised = ran.raised or Raised.plain("no-output", "forward returned no tensor there")
    squeezes = _squeezes(lab, situation)
    return Edge(
        situation.batch,
        length,
        raised,
        deliberate=is_deliberate(raised),
        too_short=bool(TOO_SHORT.search(raised.text)),
        squeezes=squeezes[0],
        squeezed_at=squeezes[1],
    )


def _squeezes(lab: Lab, situation: Situation) -> tuple[tuple[str, ...], tuple[Place, ...]]:
    """Squeezes without an axis that drop more axes than they do in the usual batch."""
    usual = {node.key: node for node in _bare(lab.trace(replace(lab.full, dtype=lab.own_dtype)))}
    found = [n for n in _bare(lab.trace(situation)) if n.key in usual and _dropped(n) > _dropped(usual[n.key])]
    return tuple(n.key for n in found), tuple(dict.fromkeys(n.place for n in found))


def _bare(trace: Trace) -> Iterator[Node]:
    return (n for n in trace.nodes if n.op == "squeeze" and len(n.args) == 1)


def _dropped(node: Node) -> int:
    tensor: Tensor = node.refs[0].tensor
    return sum(n == 1 for n in tensor.shape)


def is_deliberate(raised: Raised) -> bool:
    """Whether the target raises by a statement of its own, with a text."""
    if not raised.places:
        return False
    place = raised.places[0]
    line = linecache.getline(place.file, place.line).strip()
    if raised.kind == "AssertionError" or line.startswith(("raise ", "assert ")):
        return True
    return raised.kind in ("ValueError", "NotImplementedError") and _inside_raise(place)


def _inside_raise(place: Place) -> bool:
    """Whether the line belongs to a raise statement that spans several."""
    try:
        tree = ast.parse("".join(linecache.getlines(place.file)))
    except SyntaxError:
        return False
    raises = (n for n in ast.walk(tree) if isinstance(n, ast.Raise))
    return any(n.lineno <= place.line <= (n.end_lineno or n.lineno) for n in raises)


# ---- trimmed outputs -------------------------------------------------------------------------------------------


def gather_trimmed(lab: Lab) -> TrimmedOutput:
    """A batch in which no sample is as long as the batch, in train and in eval."""
    contract = lab.contract
    if contract.mask is None or not contract.has_sequence or contract.pooled:
        return TrimmedOutput(False, "no padding, or no positions in the output")
    padded = replace(lab.padded, dtype=lab.own_dtype)
    cut = max(2, padded.length * 2 // 3)
    situation = replace(padded, lengths=tuple(min(n, cut) for n in padded.lengths))
    eval_run, train_run = lab.run(situation), lab.run(replace(situation, training=True))
    if eval_run.output is None or train_run.output is None:
        return TrimmedOutput(False, "the padded batch does not run in both modes")
    counts = train_run.output.shape[1], eval_run.output.shape[1]
    at, encoders = ((), ()) if counts[0] == counts[1] else (_cut_at(lab, situation, counts[1]), _nested(lab))
    return TrimmedOutput(
        True,
        train=counts[0],
        eval=counts[1],
        length=situation.length,
        at=at or (_called_at(lab, situation, encoders) if encoders else ()),
        encoders=encoders,
        inside_torch=bool(encoders) and not at,
    )


def _cut_at(lab: Lab, situation: Situation, kept: int) -> tuple[Place, ...]:
    """Slices of the positions' axis in eval."""
    found = []
    for node in lab.trace(situation).nodes:
        tensor = node.tensor
        if node.op in ("slice", "index", "narrow") and tensor is not None and node.refs and not node.foreign:
            before = node.refs[0].tensor.shape
            if len(before) == tensor.dim() and situation.length in before and kept in tensor.shape:
                found.append(node.place)
    return tuple(dict.fromkeys(found))


def _nested(lab: Lab) -> tuple[str, ...]:
    modules = lab.model.named_modules()
    return tuple(n for n, m in modules if isinstance(m, nn.TransformerEncoder) and m.enable_nested_tensor)


def _called_at(lab: Lab, situation: Situation, encoders: tuple[str, ...]) -> tuple[Place, ...]:
    for node in lab.trace(situation).nodes:
        if any(node.module == name or node.module.startswith(f"{name}.") for name in encoders) and node.place.own:
            return (replace(node.place, module=encoders[0]),)
    return ()
