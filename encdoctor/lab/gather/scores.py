"""Reads the scale of attention scores off the trace, and confirms it by the recorded tensors."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isclose, sqrt

import torch
from torch import Tensor

from encdoctor.evidence.scores import Scaling, Scores, ScoreSite
from encdoctor.lab.lab import Lab
from encdoctor.lab.sites import CONTRACTIONS, ScorePath, base_name, score_paths
from encdoctor.lab.trace import CONTENT, PARAMETER, Node, Ref, Trace

# Where the way back from q and k ends: what computes them.
SOURCES = {"mm", "addmm", "bmm", "baddbmm", "convolution", "embedding", "index_select", "_softmax", "_convolution"}
NORMS = {"native_layer_norm", "_fused_rms_norm", "native_group_norm", "rms_norm"}
# Lengths of q that differ by less than this are normalised; those of random vectors differ by 1/√(2·head_dim).
CONSTANT_LENGTH = 1e-3
# How far a slope fitted to masked and biased scores may lie from the product of the factors.
SLOPE_TOLERANCE = 0.1
# Larger scores come from masks, the weakest of which in use is −1e4.
MASKED = 5e3
DECLARED = re.compile(r"\bmup\b|µp\b|μp\b|maximal update|1\s*/\s*d(_head|_k)?\b (?:scal|attention)", re.IGNORECASE)


@dataclass
class Way:
    """What happens between a projection and the product: the scalings and whether anything else scales."""

    scalings: list[Scaling]
    learned: bool = False
    normalised: bool = False

    @property
    def factor(self) -> float:
        product = 1.0
        for scaling in self.scalings:
            product *= scaling.factor
        return product


def gather_scores(lab: Lab) -> Scores:
    """Every site of the padded batch; where a scale looks odd, a shorter batch tells whether the length decides it."""
    trace = lab.trace(replace(lab.padded, dtype=lab.dtype))
    sites = tuple(_site(trace, path) for path in score_paths(trace))
    if any(site.scale is not None and not 0.6 < site.predicted < 1.7 for site in sites):
        sites = _compare_lengths(lab, sites)
    return Scores(sites, _declared(lab))


def _compare_lengths(lab: Lab, sites: tuple[ScoreSite, ...]) -> tuple[ScoreSite, ...]:
    if not lab.contract.has_sequence or lab.contract.settings.get("length"):
        return sites
    full = lab.full
    length = max(2, full.length // 2)
    shorter = lab.trace(replace(full, length=length, lengths=(length,) * full.batch, dtype=lab.dtype))
    others = [_site(shorter, path) for path in score_paths(shorter)]
    if len(others) != len(sites):
        return sites
    return tuple(
        replace(site, varies=True)
        if site.scale and other.scale and not isclose(site.scale, other.scale, rel_tol=1e-6)
        else site
        for site, other in zip(sites, others, strict=True)
    )


def _declared(lab: Lab) -> str:
    for cls in dict.fromkeys(type(module) for module in lab.model.modules()):
        if cls.__module__.startswith("torch."):
            continue
        try:
            found = DECLARED.search(inspect.getsource(cls))
        except (OSError, TypeError):
            continue
        if found:
            return f"{found.group()!r} in {cls.__name__}"
    return ""


# ---- one site --------------------------------------------------------------------------------------------------


def _site(trace: Trace, path: ScorePath) -> ScoreSite:
    left, right = operands(trace, path.contraction)
    q, k, after_product = _walk(trace, left), _walk(trace, right), _steps(path)
    scalings = _mark_torch([*q.scalings, *k.scalings], path, left.tensor.shape[-1]) + after_product.scalings
    product, later = _product_factor(path.contraction), _later_factor(path)
    scale = product * q.factor * k.factor * later if product is not None else None
    why = "" if scale is not None else "the product could not be confirmed"
    if scale is not None and not _agrees(path, later):
        scale, why = None, "the recorded scores do not follow the product of the factors"
    head_dim = _head_dim(trace, path.contraction)
    heads = _heads(path, trace)
    return ScoreSite(
        key=path.contraction.key,
        operand=trace.nodes[left.node].key if left.node >= 0 else "",
        place=path.softmax.place,
        scores_place=path.contraction.place,
        foreign=path.softmax.foreign,
        heads=heads,
        head_dim=head_dim,
        scale=scale,
        why=why,
        scalings=tuple(scalings),
        learned=q.learned or k.learned or after_product.learned,
        normalised=q.normalised or k.normalised or _constant_length(left.tensor) or _constant_length(right.tensor, -2),
        q=_size(left.tensor) / abs(q.factor or 1.0),
        k=_size(right.tensor) / abs(k.factor or 1.0),
        v=_size(_values(path)),
        spread=_spread(path),
        after=_after(trace, path),
    )


def operands(trace: Trace, contraction: Node) -> tuple[Ref, Ref]:
    """The two tensors whose product scores are; for a product that is written out, those that are multiplied."""
    if base_name(contraction.op) in CONTRACTIONS:
        left, right = contraction.refs[-2:]
        return left, right
    ref = contraction.refs[0]
    while ref.node >= 0 and base_name(trace.nodes[ref.node].op) != "mul":
        ref = trace.nodes[ref.node].refs[0]
    left, right = trace.nodes[ref.node].refs[:2]
    return left, right


def _head_dim(trace: Trace, contraction: Node) -> int:
    if base_name(contraction.op) in CONTRACTIONS:
        return int(contraction.refs[-2].tensor.shape[-1])
    dims = contraction.args[1] if len(contraction.args) > 1 else [-1]
    shape = contraction.refs[0].tensor.shape
    size = 1
    for dim in dims or []:
        size *= int(shape[dim])
    return size


def _heads(path: ScorePath, trace: Trace) -> int:
    """How many score matrices a sample has."""
    product = path.contraction.tensor
    assert product is not None and trace.keep is not None
    keys = path.scores.tensor.shape[path.dim]
    matrix = product.shape[-2] * product.shape[-1] if base_name(path.contraction.op) in CONTRACTIONS else keys**2
    return max(1, product.numel() // max(1, matrix * trace.keep.shape[0]))


def _walk(trace: Trace, ref: Ref) -> Way:
    """Back from an operand of the product to the projection that made it."""
    way = Way([])
    for _ in range(40):
        if ref.node < 0:
            return way
        node = trace.nodes[ref.node]
        op = base_name(node.op)
        if op in NORMS:
            way.normalised = True
        if op in SOURCES or op in NORMS or not node.refs:
            return way
        following = max(node.refs, key=lambda r: (bool(r.taint & CONTENT), r.tensor.numel()))
        book(way, node, following)
        ref = following
    return way


def _steps(path: ScorePath) -> Way:
    way = Way([])
    for node, score in path.steps:
        if node.index != path.contraction.index:
            book(way, node, score)
    return way


def _later_factor(path: ScorePath) -> float:
    """The plain factors behind the product; those that wrote into it are seen in its recorded tensor already."""
    product = path.contraction.tensor
    assert product is not None
    way = Way([])
    for node, score in path.steps:
        wrote = node.op.endswith("_") and score.tensor.data_ptr() == product.data_ptr()
        if not wrote and node.index != path.contraction.index:
            book(way, node, score)
    return way.factor


def book(way: Way, node: Node, carrier: Ref) -> None:
    """Notes what a multiplication or division does to the tensor that is followed."""
    op = base_name(node.op)
    if op not in ("mul", "div") or len(node.args) < 2:
        return
    first, second = node.args[0], node.args[1]
    other = second if isinstance(first, Ref) and first.tensor is carrier.tensor else first
    number = _number(other)
    if number is not None:
        divides = op == "div" and other is second
        way.scalings.append(Scaling(1.0 / number if divides else number, node.place))
    elif isinstance(other, Ref) and other.taint & PARAMETER and not other.taint & CONTENT:
        way.learned = True
    elif isinstance(other, Ref) and other.taint & CONTENT and other.tensor.shape != carrier.tensor.shape:
        way.normalised = True


def _number(value: object) -> float | None:
    """A plain number, or a constant of one element; None for all else, and for 0."""
    if isinstance(value, Ref):
        if value.tensor.numel() != 1 or value.taint:
            return None
        value = float(value.tensor)
    return float(value) if isinstance(value, int | float) and value else None


def _mark_torch(scalings: list[Scaling], path: ScorePath, head_dim: int) -> list[Scaling]:
    """Fused attention scales q and k alike by the root of its scale, on the line of the product."""
    at = path.contraction.place
    here = [s for s in scalings if s.place == at]
    pair = len(here) >= 2 and isclose(here[0].factor, here[-1].factor, rel_tol=1e-6)
    return [replace(s, by_torch=True) if pair and s in (here[0], here[-1]) else s for s in scalings]


# ---- numbers ---------------------------------------------------------------------------------------------------


def _product_factor(contraction: Node) -> float | None:
    """What the recorded output is of the product of the recorded operands: 1, unless a repair acts on it."""
    output = contraction.tensor
    assert output is not None
    op = base_name(contraction.op)
    if op not in CONTRACTIONS:
        product = contraction.refs[0].tensor.sum(contraction.args[1] if len(contraction.args) > 1 else -1)
        product = product.reshape(output.shape)
    else:
        left, right = contraction.refs[-2:]
        product = left.tensor @ right.tensor
    if op == "baddbmm":
        output = output - contraction.refs[0].tensor * float(contraction.kwargs.get("beta", 1.0))
    slope, fits = _fit(product, output)
    return slope if fits else None


def _agrees(path: ScorePath, factor: float) -> bool:
    """Whether the softmax's input follows the product with that slope; True where masks and biases hide it."""
    product = path.contraction.tensor
    assert product is not None
    if base_name(path.contraction.op) == "baddbmm" or product.numel() != path.scores.tensor.numel():
        return True
    slope, fits = _fit(product, path.scores.tensor)
    return not fits or isclose(slope, factor, rel_tol=SLOPE_TOLERANCE)


def _fit(x: Tensor, y: Tensor) -> tuple[float, bool]:
    """The slope of y over x, and whether a line fits (correlation above 0.95)."""
    x, y = x.detach().double().flatten(), y.detach().double().flatten()
    usable = torch.isfinite(x) & torch.isfinite(y) & (y.abs() < MASKED)
    if int(usable.sum()) < 3:
        return 1.0, False
    x, y = x[usable] - x[usable].mean(), y[usable] - y[usable].mean()
    xx, yy, xy = float(x @ x), float(y @ y), float(x @ y)
    if xx == 0 or yy == 0:
        return 1.0, False
    return xy / xx, xy / sqrt(xx * yy) > 0.95


def _constant_length(tensor: Tensor, axis: int = -1) -> bool:
    """Whether all vectors along the axis have one length; zero vectors (nothing projected) do not count."""
    if tensor.dim() < 2 or tensor.shape[axis] < 2:
        return False
    lengths = tensor.detach().double().norm(dim=axis)
    lengths = lengths[lengths > 0]
    return lengths.numel() > 2 and float(lengths.std() / lengths.mean()) < CONSTANT_LENGTH


def _size(tensor: Tensor) -> float:
    return float(tensor.detach().double().square().mean().sqrt())


def _values(path: ScorePath) -> Tensor:
    return path.reader.refs[-1].tensor


def _spread(path: ScorePath) -> float:
    scores = path.scores.tensor.detach().double()
    scores = scores[torch.isfinite(scores) & (scores.abs() < MASKED)]
    return float(scores.std()) if scores.numel() > 1 else 0.0


def _after(trace: Trace, path: ScorePath) -> float:
    """The plain factors between the softmax and the values."""
    way = Way([])
    for node, carrier in back_to(trace, path.reader, path.softmax):
        book(way, node, carrier)
    return way.factor


def back_to(trace: Trace, reader: Node, softmax: Node) -> Iterator[tuple[Node, Ref]]:
    """The operations between a softmax and the contraction that reads it, with the operand that carries the weights."""
    reaches = {softmax.index}
    found: list[tuple[Node, Ref]] = []
    for node in trace.nodes[softmax.index + 1 : reader.index]:
        carrier = next((ref for ref in node.refs if ref.node in reaches), None)
        if carrier is not None:
            reaches.add(node.index)
            found.append((node, carrier))
    # only those that the reader depends on
    needed = {ref.node for ref in reader.refs}
    for node, carrier in reversed(found):
        if node.index in needed:
            needed.add(carrier.node)
            yield node, carrier
