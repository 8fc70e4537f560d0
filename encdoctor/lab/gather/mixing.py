"""Puts the identity in place of every attention weight and looks what still mixes positions."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from encdoctor.evidence.mixing import Mixer, Scramble, TokenMixing
from encdoctor.lab.batches import Call, make_call
from encdoctor.lab.compare import ancestors, axis_of, change_outside, moved, paired
from encdoctor.lab.gather.scores import operands
from encdoctor.lab.lab import Lab, Treatment
from encdoctor.lab.sites import VIEWS, ScorePath, base_name, score_paths
from encdoctor.lab.situations import Situation
from encdoctor.lab.trace import CONTENT, Edit, Node, Operation, Trace

LAYOUT = VIEWS - {"_to_copy", "expand", "slice", "select", "unfold", "detach", "lift_fresh"}
# An encoder ends with a norm, a projection, a pooling: the last operations that still have a position axis.
LAST = 40


def gather_token_mixing(lab: Lab) -> TokenMixing:
    """Two recordings under identity attention that differ in one position of every sample."""
    situation = replace(lab.full, dtype=lab.dtype)
    plain = lab.trace(situation)
    paths = list(score_paths(plain))
    lengths = {path.softmax.tensor.shape[path.dim] for path in paths if path.softmax.tensor is not None}
    if len(lengths) != 1:
        return TokenMixing(False, "no attention was seen" if not lengths else "attention changes its length")
    length = lengths.pop()
    if any(not _is_square(path, length) for path in paths):
        return TokenMixing(False, "attention is not square")
    still = lab.under(Treatment(edits=dict.fromkeys([p.softmax.key for p in paths], identity(length))))
    first, second = _two_calls(lab, situation)
    before, after = still.record(situation, first), still.record(situation, second)
    return _first_mixing(before, after, length, lab.full.length if lab.contract.has_sequence else 0)


def identity(length: int) -> Edit:
    """Weights that let every position see itself only."""

    def edit(op: Operation) -> Tensor:
        output: Tensor = op.output
        shape = [length if n == length else 1 for n in output.shape]
        eye = torch.eye(length, dtype=output.dtype, device=output.device)
        return eye.reshape(shape).expand(output.shape).contiguous()

    return edit


def _is_square(path: ScorePath, length: int) -> bool:
    weights = path.softmax.tensor
    return weights is not None and sum(n == length for n in weights.shape) == 2


def _two_calls(lab: Lab, situation: Situation) -> tuple[Call, Call]:
    """The usual call, and one in which a position in the middle is another: a token, or a pixel."""
    first = make_call(lab.contract, situation, lab.device)
    if lab.contract.has_sequence:
        place = situation.length // 2
        changed = replace(situation, replaced=tuple((b, place) for b in range(situation.batch)))
        return first, make_call(lab.contract, changed, lab.device)
    second = make_call(lab.contract, situation, lab.device)
    # every row of a feature table, or one pixel
    middle = tuple(slice(None) if n == situation.batch else n // 2 for n in second.content.shape)
    second.content[middle] += 1 if not second.content.is_floating_point() else 3.0
    return first, second


def _first_mixing(before: Trace, after: Trace, length: int, tokens: int) -> TokenMixing:
    live, read = _live(before), _read(before)
    own: dict[int, set[int]] = {}
    found: TokenMixing | None = None
    for one, other in paired(before, after):
        left, right = one.tensor, other.tensor
        assert left is not None and right is not None
        if one.index not in live or not one.taint & CONTENT:
            continue
        for size in {length, tokens} - {0}:
            axis = axis_of(left, size)
            if axis is None:
                continue
            at = set(moved(left, right, axis).tolist())
            allowed = own.setdefault(size, at) if at else set()
            if at <= allowed:
                continue
            found = found or _describe(before, one, len(at), change_outside(left, right, axis, allowed), size)
            # a rearrangement that is undone before anything reads it does no harm
            if found.scramble is None or one.index in read:
                return found
    return TokenMixing(True)


def _live(trace: Trace) -> set[int]:
    """What leads to q, k and v and to the output, the scores themselves left out."""
    starts, stop = [], set()
    for path in score_paths(trace):
        starts += [trace.nodes[r.node] for r in operands(trace, path.contraction) if r.node >= 0]
        stop.add(path.softmax.index)
    starts += trace.nodes[-1:]
    return ancestors(trace, starts, stop)


def _read(trace: Trace) -> set[int]:
    """What attention reads, and the last operations."""
    read = set(range(len(trace.nodes) - LAST, len(trace.nodes)))
    for path in score_paths(trace):
        read |= {ref.node for ref in (*operands(trace, path.contraction), *path.reader.refs)}
    return read


def _describe(trace: Trace, node: Node, reached: int, change: float, length: int) -> TokenMixing:
    if base_name(node.op) not in LAYOUT or not node.refs:
        return TokenMixing(True, mixer=Mixer(node.key, node.op, node.place, reached, change))
    shape, result = tuple(node.refs[0].tensor.shape), tuple(node.refs and node.tensor.shape)  # type: ignore[union-attr]
    same = [
        n for n in trace.nodes
        if n.op == node.op and (n.place.file, n.place.line) == (node.place.file, node.place.line)
        and n.tensor is not None and tuple(n.tensor.shape) == result
    ]  # fmt: skip
    return TokenMixing(
        True,
        scramble=Scramble(
            keys=tuple(n.key for n in same),
            places=tuple(dict.fromkeys(n.place for n in same)),
            merging=_is_behind_values(trace, node),
            before=shape,
            after=result,
            length=length,
            reached=reached,
            change=change,
        ),
    )


def _is_behind_values(trace: Trace, node: Node) -> bool:
    readers = {path.reader.index for path in score_paths(trace)}
    while node.index not in readers:
        if base_name(node.op) not in VIEWS or not node.refs or node.refs[0].node < 0:
            return False
        node = trace.nodes[node.refs[0].node]
    return True
