"""Finds attention in a trace, however it was written.

A site is a softmax (or exp over its sum) whose input goes back, through scaling and masking, to a contraction of two
computed tensors, and whose output goes on, through dropout and masking, into another contraction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from encdoctor.lab.trace import CONTENT, PARAMETER, Node, Ref, Trace

VIEWS = {
    "view", "_unsafe_view", "reshape", "expand", "permute", "transpose", "t", "unsqueeze", "squeeze", "clone",
    "contiguous", "_to_copy", "alias", "detach", "slice", "select", "unfold", "lift_fresh", "_reshape_alias",
}  # fmt: skip
SCORE_STEPS = VIEWS | {
    "add", "sub", "mul", "div", "masked_fill", "where", "clamp", "tanh", "maximum", "minimum", "clamp_min",
    "copy", "index_put", "fill", "masked_scatter", "rsub", "neg",
}  # fmt: skip
WEIGHT_STEPS = VIEWS | {
    "mul", "div", "masked_fill", "where", "native_dropout", "nan_to_num", "mean", "cat", "add",
    "_softmax", "_safe_softmax", "sigmoid", "relu", "tanh",
}  # fmt: skip
CONTRACTIONS = {"bmm", "mm", "baddbmm"}
SOFTMAXES = {"_softmax", "_safe_softmax"}
# What is added to a sum of exponentials against division by zero; more than that changes the weights.
EPS_BELOW = 1e-3


@dataclass(frozen=True)
class _Softmax:
    node: Node
    scores: Ref
    dim: int


@dataclass(frozen=True)
class _Found:
    """The contraction that makes scores, and the steps from it to the softmax, in the order they run."""

    contraction: Node
    steps: tuple[tuple[Node, Ref], ...]


@dataclass(frozen=True)
class ScorePath:
    """One softmax over scores with the contraction that makes them, the steps between (each with the operand that
    carries the scores), and the contraction that reads the weights."""

    softmax: Node
    scores: Ref
    dim: int
    contraction: Node
    steps: tuple[tuple[Node, Ref], ...]
    reader: Node


def score_paths(trace: Trace) -> Iterator[ScorePath]:
    """The way from products to weights at every site, for those who look at the numbers instead of the masks."""
    users = trace.users()
    for soft in _softmaxes(trace):
        found, reader = _find_scores(trace, soft.scores), _reaches_values(trace, users, soft.node)
        if found is not None and reader is not None:
            yield ScorePath(soft.node, soft.scores, soft.dim, found.contraction, found.steps, reader)


# ---- finding ---------------------------------------------------------------------------------------------------


def base_name(op: str) -> str:
    """The name without the mark of an in-place operation."""
    return op.rstrip("_") if not op.startswith("_") else op


def _softmaxes(trace: Trace) -> Iterator[_Softmax]:
    for node in trace.nodes:
        if node.op in SOFTMAXES:
            dim = node.args[1]
            yield _Softmax(node, node.args[0], _axis(node, dim, node.args[0]))
        elif base_name(node.op) == "div" and len(node.refs) == 2:
            soft = _written_out(trace, node)
            if soft is not None:
                yield soft


def _axis(node: Node, dim: int, scores: Ref) -> int:
    """The axis that a softmax runs over; a repair that moved it says so on its result."""
    return int(getattr(node.tensor, "softmax_dim", dim)) % scores.tensor.dim()


def _written_out(trace: Trace, node: Node) -> _Softmax | None:
    """exp(x) / exp(x).sum(dim), with or without the maximum subtracted."""
    above, below = node.refs
    top, bottom = _through_views(trace, above), _without_eps(trace, _through_views(trace, below))
    if top is None or bottom is None or bottom.op != "sum":
        return None
    summed = _through_views(trace, bottom.refs[0])
    if summed is None or summed.index != top.index:
        return None
    exp: Node | None = top
    while exp is not None and base_name(exp.op) in ("mul", "masked_fill", "where"):
        exp = next((trace.nodes[r.node] for r in exp.refs if r.node >= 0 and r.tensor.is_floating_point()), None)
    if exp is None or base_name(exp.op) != "exp":
        return None
    scores = exp.refs[0]
    dims = bottom.args[1] if len(bottom.args) > 1 else [-1]
    dim = dims[0] if isinstance(dims, list | tuple) and dims else -1
    made = trace.nodes[scores.node] if scores.node >= 0 else None
    if made is not None and base_name(made.op) == "sub":
        scores = made.refs[0]
    return _Softmax(node, scores, _axis(node, dim, scores))


def _without_eps(trace: Trace, node: Node | None) -> Node | None:
    """The sum below a small number that was added against division by zero."""
    if node is None or base_name(node.op) not in ("add", "clamp", "clamp_min") or len(node.args) < 2:
        return node
    eps = node.args[1]
    return _through_views(trace, node.refs[0]) if isinstance(eps, int | float) and 0 < eps < EPS_BELOW else node


def _through_views(trace: Trace, ref: Ref) -> Node | None:
    while ref.node >= 0:
        node = trace.nodes[ref.node]
        if base_name(node.op) not in VIEWS or not node.refs:
            return node
        ref = node.refs[0]
    return None


def _find_scores(trace: Trace, ref: Ref, depth: int = 0) -> _Found | None:
    """Walks back from scores to the contraction of two computed tensors."""
    if ref.node < 0 or depth > 40:
        return None
    node = trace.nodes[ref.node]
    op = base_name(node.op)
    if _is_contraction(trace, node):
        # baddbmm adds its first argument, which is then a mask or a bias
        steps = ((node, Ref(-1, node.refs[0].tensor, 0)),) if op == "baddbmm" else ()
        return _Found(node, steps)
    if op not in SCORE_STEPS:
        return None
    for operand in sorted(node.refs, key=lambda r: -r.tensor.numel()):
        found = _find_scores(trace, operand, depth + 1)
        if found is not None:
            return _Found(found.contraction, (*found.steps, (node, operand)))
    return None


def _is_contraction(trace: Trace, node: Node) -> bool:
    op = base_name(node.op)
    if op in CONTRACTIONS:
        left, right = node.refs[-2:]
        return not _is_weight(trace, left) and not _is_weight(trace, right) and bool(node.taint & CONTENT)
    if op == "sum" and node.refs:
        product = _through_views(trace, node.refs[0])
        if product is None or base_name(product.op) != "mul" or len(product.refs) != 2:
            return False
        return all(r.taint & CONTENT and r.tensor.dim() > 3 for r in product.refs)
    return False


def _is_weight(trace: Trace, ref: Ref) -> bool:
    """Whether a tensor is a parameter seen through views."""
    while ref.node >= 0:
        node = trace.nodes[ref.node]
        if base_name(node.op) not in VIEWS or not node.refs:
            return False
        ref = node.refs[0]
    return isinstance(ref.tensor, nn.Parameter) or bool(ref.taint & PARAMETER)


def _reaches_values(trace: Trace, users: dict[int, list[Node]], node: Node, depth: int = 0) -> Node | None:
    """The contraction that the weights go into, or None."""
    for user in users.get(node.index, []):
        op = base_name(user.op)
        if op in CONTRACTIONS or (op == "sum" and base_name(node.op) == "mul"):
            return user
        if op in WEIGHT_STEPS and depth < 12:
            found = _reaches_values(trace, users, user, depth + 1)
            if found is not None:
                return found
    return None


def head_dim(contraction: Node) -> int:
    if base_name(contraction.op) in CONTRACTIONS:
        return int(contraction.refs[-2].tensor.shape[-1])
    return 0


def score_scale(trace: Trace, found: ScorePath) -> float | None:
    """The product of the plain numbers on q, on k and on the scores."""
    scale = 1.0
    for node, _ in found.steps:
        scale *= _factor(node)
    if base_name(found.contraction.op) == "baddbmm":
        scale *= float(found.contraction.kwargs.get("alpha", 1.0))
    if base_name(found.contraction.op) not in CONTRACTIONS:
        return scale
    for operand in found.contraction.refs[-2:]:
        ref = operand
        while ref.node >= 0 and base_name(trace.nodes[ref.node].op) in VIEWS | {"mul", "div"}:
            node = trace.nodes[ref.node]
            tensors = [r for r in node.refs if r.tensor.dim() > 0]
            if len(tensors) != 1:
                break
            scale *= _factor(node)
            ref = tensors[0]
    return scale


def _factor(node: Node) -> float:
    """What a multiplication or division by one number contributes, else 1."""
    op = base_name(node.op)
    if op not in ("mul", "div") or len(node.args) < 2:
        return 1.0
    other = node.args[1]
    if isinstance(other, Ref):
        if other.tensor.numel() != 1:
            return 1.0
        other = float(other.tensor)
    return float(other) if op == "mul" else 1.0 / float(other)
