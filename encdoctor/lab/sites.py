"""Finds attention in a trace, however it was written, and reads its masks.

A site is a softmax (or exp over its sum) whose input goes back, through scaling and masking, to a contraction of two
computed tensors, and whose output goes on, through dropout and masking, into another contraction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from encdoctor.evidence.attention import AttentionSites, Covers, MaskAt, Site, UnmaskedSites
from encdoctor.evidence.influence import InfluenceMatrix
from encdoctor.lab.lab import Lab
from encdoctor.lab.trace import CONTENT, MASK, PARAMETER, Node, Ref, Trace
from encdoctor.model import Place

VIEWS = {
    "view", "_unsafe_view", "reshape", "expand", "permute", "transpose", "t", "unsqueeze", "squeeze", "clone",
    "contiguous", "_to_copy", "alias", "detach", "slice", "select", "unfold", "lift_fresh", "_reshape_alias",
}  # fmt: skip
SCORE_STEPS = VIEWS | {
    "add", "sub", "mul", "div", "masked_fill", "where", "clamp", "tanh", "maximum", "minimum", "clamp_min",
    "copy", "index_put", "fill", "masked_scatter", "rsub", "neg",
}  # fmt: skip
WEIGHT_STEPS = VIEWS | {"mul", "div", "masked_fill", "where", "native_dropout", "nan_to_num", "mean", "cat", "add"}
CONTRACTIONS = {"bmm", "mm", "baddbmm"}
LAYING_OUT = {"unsqueeze", "transpose", "permute", "view", "t", "reshape"}
SOFTMAXES = {"_softmax", "_safe_softmax"}
# An additive mask hides where it lies this far below its maximum: e^-1 is no mask, a position bias stays above it
# only when it comes from the mask argument; constants must reach the second figure.
ADDED_FROM_MASK, ADDED_CONSTANT = 1e-12, 1e3
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


def gather_attention(lab: Lab) -> AttentionSites:
    """Sites of the padded batch, with masks on and the fused paths off."""
    trace = lab.trace(replace(lab.padded, dtype=lab.dtype))
    if not trace.nodes:
        return AttentionSites((), False, "no operation was recorded")
    sites = tuple(site for _, site in sites_with_nodes(lab, trace))
    if sites:
        return AttentionSites(sites, True)
    return AttentionSites((), False, "no softmax over a product of two computed tensors was recorded")


def gather_unmasked(lab: Lab) -> UnmaskedSites:
    """Sites of a call without padding, where a mask that is made inside shows; only after a symptom."""
    future = lab.get(InfluenceMatrix).future()
    if future is None or future[0] > 0 or future[1] == 0:
        return UnmaskedSites(())
    trace = lab.trace(replace(lab.full, dtype=lab.dtype, masked=False))
    return UnmaskedSites(tuple(site for _, site in sites_with_nodes(lab, trace)))


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


def sites_with_nodes(lab: Lab, trace: Trace) -> Iterator[tuple[Node, Site]]:
    """Each site with the node of its softmax."""
    users = trace.users()
    for soft in _softmaxes(trace):
        found = _find_scores(trace, soft.scores)
        if found is None or not _reaches_values(trace, users, soft.node):
            continue
        yield soft.node, _describe(lab, trace, soft, found, users)


# ---- finding ---------------------------------------------------------------------------------------------------


def base_name(op: str) -> str:
    """The name without the mark of an in-place operation."""
    return op.rstrip("_") if not op.startswith("_") else op


def _softmaxes(trace: Trace) -> Iterator[_Softmax]:
    for node in trace.nodes:
        if node.op in SOFTMAXES:
            dim = node.args[1]
            yield _Softmax(node, node.args[0], dim % node.args[0].tensor.dim())
        elif base_name(node.op) == "div" and len(node.refs) == 2:
            soft = _written_out(trace, node)
            if soft is not None:
                yield soft


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
    return _Softmax(node, scores, dim % scores.tensor.dim())


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


# ---- describing ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Axes:
    """How a score tensor is laid out: which axis is the keys', the queries', and where samples are."""

    keys: int
    queries: int
    batch: int
    samples: int


def _describe(
    lab: Lab, trace: Trace, soft: _Softmax, found: _Found, users: dict[int, list[Node]]
) -> Site:
    assert trace.keep is not None
    weights = soft.node.tensor
    assert weights is not None
    axes = _axes(weights, soft.dim, trace.keep)
    steps = [(node, ref) for node, ref in found.steps]
    masks = tuple(m for node, ref in steps if (m := _read_mask(lab, trace, node, ref, axes)) is not None)
    after = tuple(_masks_after(lab, trace, soft.node, users, axes))
    ordered = _arrange(weights, axes)
    keep = _keep_of(lab, trace.keep, ordered)
    queries, keys = ordered.shape[2], ordered.shape[3]
    contraction = found.contraction
    return Site(
        key=soft.node.key,
        module=soft.node.module,
        place=soft.node.place,
        scores_place=contraction.place,
        foreign=soft.node.foreign,
        heads=ordered.shape[1],
        queries=queries,
        keys=keys,
        head_dim=_head_dim(contraction),
        scale=_scale(trace, found),
        masks=masks,
        after_softmax=after,
        on_padding=_on_padding(ordered, keep),
        on_future=float(torch.triu(ordered, 1).amax()) if queries == keys else 0.0,
        mask_lost_at=_mask_lost_at(trace, soft.node.module),
        over_batch=keys == trace.keep.shape[0] != trace.keep.shape[1] and ordered.shape[0] != trace.keep.shape[0],
        aligned=keep is not None,
    )


def _mask_lost_at(trace: Trace, module: str) -> tuple[Place, ...]:
    """The calls between the last module that is handed the mask and the one that attends."""
    parts = module.split(".")
    chain = [".".join(parts[:n]) for n in range(len(parts) + 1)]
    handed = [(name, *trace.handed[name]) for name in chain if name in trace.handed]
    given = [i for i, (_, _, masked) in enumerate(handed) if masked]
    if not given:
        return ()
    return tuple(place for _, place, _ in handed[given[-1] + 1 :] if place.own)


def _axes(weights: Tensor, key_dim: int, keep: Tensor) -> Axes:
    samples, length = keep.shape
    others = [i for i in range(weights.dim()) if i != key_dim]
    batch = others[0]
    rest = [i for i in others[1:] if weights.shape[i] == weights.shape[key_dim]]
    rest = rest or [i for i in others[1:] if weights.shape[i] >= length] or others[1:] or others
    return Axes(key_dim, min(rest, key=lambda i: abs(i - key_dim)), batch, samples)


def _arrange(scores: Tensor, axes: Axes) -> Tensor:
    """(B, H, Q, K); folded (B·H, Q, K) scores are unfolded with the sample as the slower index, torch's way."""
    if scores.dim() < 3:
        return scores.reshape(1, 1, *scores.shape[-2:])
    heads = [i for i in range(scores.dim()) if i not in (axes.keys, axes.queries, axes.batch)]
    moved = scores.permute(axes.batch, *heads, axes.queries, axes.keys)
    moved = moved.reshape(moved.shape[0], -1, *moved.shape[-2:])
    if moved.shape[0] != axes.samples and moved.shape[0] % axes.samples == 0 and moved.shape[1] == 1:
        return moved.reshape(axes.samples, -1, *moved.shape[-2:])
    return moved


def _keep_of(lab: Lab, keep: Tensor, ordered: Tensor) -> Tensor | None:
    """(B, K) real keys at the site, or None where its keys are not the input's positions."""
    keys, length = ordered.shape[3], keep.shape[1]
    if ordered.shape[0] != keep.shape[0]:
        return None
    if keys == length:
        return keep
    extra = keys - length
    if not 0 < extra <= 2:
        return None
    front = lab.contract.output_offset
    front = extra if front is None else min(front, extra)
    ones = torch.ones(keep.shape[0], extra, dtype=torch.bool, device=keep.device)
    return torch.cat([ones[:, :front], keep, ones[:, front:]], 1)


def _on_padding(weights: Tensor, keep: Tensor | None) -> float:
    if keep is None:
        return 0.0
    leak = weights.masked_fill(keep[:, None, None, :], 0.0)
    if weights.shape[2] == keep.shape[1]:
        leak = leak.masked_fill(~keep[:, None, :, None], 0.0)
    leak = torch.nan_to_num(leak)
    return float(leak.amax())


def _read_mask(lab: Lab, trace: Trace, node: Node, score: Ref, axes: Axes) -> MaskAt | None:
    """The mask that one step on the way to the softmax applies, or None."""
    read = _hidden(node, score)
    if read is None:
        return None
    hidden, fill, how, other = read
    out = node.tensor
    assert out is not None
    grows = score.tensor.dim() < out.dim() or (score.node >= 0 and out.numel() > score.tensor.numel())
    covers, offset = _covers(lab, trace, hidden, out, axes)
    from_mask = bool(other.taint & MASK) and not other.taint & PARAMETER
    if covers is Covers.NOTHING and not from_mask:
        return None
    rank = _rank_before_expand(trace, other)
    made = _history(trace, other)
    return MaskAt(
        key=node.key,
        place=node.place,
        how=how,
        covers=covers,
        fill=fill,
        from_mask=from_mask,
        rank=rank,
        score_rank=score.tensor.dim(),
        offset=offset,
        grows=grows,
        history=tuple(dict.fromkeys(n.place for n in made)),
        shaped=next((n.place for n in made if base_name(n.op) in LAYING_OUT), None),
    )


def _history(trace: Trace, ref: Ref, steps: int = 12) -> list[Node]:
    """The operations that made a mask out of the caller's mask or the ids, the latest first."""
    made: list[Node] = []
    while ref.node >= 0 and len(made) < steps:
        node = trace.nodes[ref.node]
        made.append(node)
        if not node.refs:
            break
        ref = max(node.refs, key=lambda r: (bool(r.taint & MASK), r.node))
    return [node for node in made if node.place.line]


def _hidden(node: Node, score: Ref) -> tuple[Tensor, float, str, Ref] | None:
    """(which scores are hidden, fill value, how, the mask's operand) of one operation, None if it is no mask."""
    op = base_name(node.op)
    others = [r for r in node.refs if r.tensor is not score.tensor]
    if op in ("masked_fill", "masked_scatter") and others:
        mask = next((r for r in others if r.tensor.dtype is torch.bool), None)
        value = node.args[2] if len(node.args) > 2 else node.kwargs.get("value", 0.0)
        return None if mask is None else (mask.tensor, _number(value), "fill", mask)
    if op == "where" and len(node.refs) >= 2:
        condition = node.refs[0]
        chosen = node.args[1]
        score_first = isinstance(chosen, Ref) and chosen.tensor is score.tensor
        value = node.args[2] if score_first else node.args[1]
        return (~condition.tensor if score_first else condition.tensor, _number(value), "fill", condition)
    if op == "baddbmm":
        return _added(node.refs[0], 1.0)
    if op in ("add", "sub") and others:
        return _added(others[0], -1.0 if op == "sub" else 1.0)
    if op == "mul" and others and others[0].taint & MASK and not others[0].taint & PARAMETER:
        other = others[0]
        return (other.tensor == 0, 0.0, "multiply", other)
    return None


def _added(other: Ref, sign: float) -> tuple[Tensor, float, str, Ref] | None:
    value = other.tensor * sign
    if not value.is_floating_point():
        value = value.double()
    top = value.amax() if value.numel() else value.new_zeros(())
    from_mask = other.taint & MASK and not other.taint & PARAMETER
    if not from_mask and other.taint & (CONTENT | PARAMETER):
        return None
    hidden = value < top - (ADDED_FROM_MASK if from_mask else ADDED_CONSTANT)
    fill = float(value.amin()) if value.numel() else 0.0
    return hidden, fill, "add", other


def _number(value: Any) -> float:
    if isinstance(value, Ref):
        flat = value.tensor.reshape(-1)
        return float(flat.amin()) if flat.numel() else 0.0
    return float(value)


def _covers(lab: Lab, trace: Trace, hidden: Tensor, scores: Tensor, axes: Axes) -> tuple[Covers, int]:
    """Names the pattern that a mask hides, over real queries."""
    assert trace.keep is not None
    if not bool(hidden.any()):
        return Covers.NOTHING, 0
    try:
        pattern = _arrange(hidden.expand(scores.shape), axes)
    except RuntimeError:
        return Covers.OTHER, 0
    keep = _keep_of(lab, trace.keep, pattern)
    square = pattern.shape[2] == pattern.shape[3]
    if keep is None:
        return _triangle(pattern) if square else (Covers.OTHER, 0)
    if bool(pattern.all()):
        return Covers.ALL, 0
    queries = keep if pattern.shape[2] == keep.shape[1] else keep.new_ones(keep.shape[0], pattern.shape[2])
    pad = ~keep[:, None, None, :]
    on_real = queries[:, None, :, None]

    def same(expected: Tensor) -> bool:
        return bool(((pattern == expected) | ~on_real).all())

    if same(pad):
        return Covers.PADDED_KEYS, 0
    if same(~pad):
        return Covers.REAL_KEYS, 0
    if bool((pattern == ~queries[:, None, :, None]).all()) and square:
        return Covers.PADDED_ROWS, 0
    if square:
        triangle, offset = _triangle(pattern)
        if triangle is not Covers.OTHER:
            return triangle, offset
        for offset in range(-2, 3):
            later = torch.ones_like(pattern[0, 0]).triu(offset)
            if same(pad | later):
                return Covers.FUTURE, offset
    if bool((pattern == pattern[:, :, :1]).all()) and _is_other_samples(pattern[:, :, 0], keep):
        return Covers.OTHER_SAMPLE, 0
    return Covers.OTHER, 0


def _triangle(pattern: Tensor) -> tuple[Covers, int]:
    """Causal, reversed, banded or diagonal patterns that are the same for every sample and head."""
    first = pattern[0, 0]
    if not bool((pattern == first).all()):
        return Covers.OTHER, 0
    ones = torch.ones_like(first)
    for offset in range(-3, 4):
        if torch.equal(first, ones.triu(offset)):
            return Covers.FUTURE, offset
        if torch.equal(first, ones.tril(offset)):
            return Covers.PAST, offset
    if torch.equal(first, torch.eye(len(first), dtype=torch.bool, device=first.device)):
        return Covers.DIAGONAL, 0
    for width in range(1, len(first) - 1):
        if torch.equal(first, ones.triu(width + 1) | ones.tril(-width - 1)):
            return Covers.BAND, width
    return Covers.OTHER, 0


def _is_other_samples(by_head: Tensor, keep: Tensor) -> bool:
    """(B, H, K): every head of every sample hides the padding of some sample, and not always its own."""
    known = {tuple(row.tolist()) for row in ~keep}
    return all(tuple(row.tolist()) in known for row in by_head.reshape(-1, by_head.shape[-1]))


def _masks_after(
    lab: Lab, trace: Trace, soft: Node, users: dict[int, list[Node]], axes: Axes
) -> Iterator[MaskAt]:
    """Masks applied to the weights, after the softmax."""
    for user in users.get(soft.index, []):
        ref = next(r for r in user.refs if r.node == soft.index)
        mask = _read_mask(lab, trace, user, ref, axes) if base_name(user.op) in WEIGHT_STEPS else None
        if mask is not None:
            yield mask


def _rank_before_expand(trace: Trace, ref: Ref) -> int:
    while ref.node >= 0 and base_name(trace.nodes[ref.node].op) == "expand":
        ref = trace.nodes[ref.node].refs[0]
    return ref.tensor.dim()


def _head_dim(contraction: Node) -> int:
    if base_name(contraction.op) in CONTRACTIONS:
        return int(contraction.refs[-2].tensor.shape[-1])
    return 0


def _scale(trace: Trace, found: _Found) -> float | None:
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
