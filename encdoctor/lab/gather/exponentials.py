"""Enlarges the arguments of exponentials that are written out, and sees whether the output stays finite."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from encdoctor.evidence.exponentials import Exponential, Exponentials
from encdoctor.lab.gather.influence import real_outputs
from encdoctor.lab.gather.scores import MASKED
from encdoctor.lab.lab import Lab, NotMeasured, Treatment
from encdoctor.lab.nonfinite import first_bad
from encdoctor.lab.sites import SOFTMAXES, VIEWS, base_name
from encdoctor.lab.situations import Situation
from encdoctor.lab.trace import CONTENT, Edit, Node, Operation, Ref, Trace

# Trained attention reaches logits of this size; exp overflows float32 at 88.7.
TRAINED = 120.0
# Behind these an argument is bounded, whatever training does.
BOUNDS = {"tanh", "sigmoid", "clamp", "clamp_max", "minimum", "hardtanh", "_softmax", "_log_softmax", "cos", "sin"}
MASKS = {"mul", "masked_fill", "where", "nan_to_num"}


@dataclass(frozen=True)
class _Candidate:
    """`node` is the exponential or the logarithm, `end` where its overflow shows."""

    node: Node
    end: Node
    argument: Ref
    kind: str
    dim: int


def gather_exponentials(lab: Lab) -> Exponentials:
    """One more forward for each that is found, in the model's own dtype."""
    situation = replace(lab.padded, dtype=lab.own_dtype)
    plain = lab.run(situation)
    if plain.output is None:
        raise NotMeasured(plain.raised.summary if plain.raised else "forward returned no tensor")
    trace = lab.trace(situation)
    candidates = list(_candidates(trace))
    if candidates and not bool(torch.isfinite(plain.output).all()):
        # not finite as it is: only where it starts here is it a matter of these exponentials
        first = first_bad(lab, trace, lab.copy_of(lab.own_dtype))
        candidates = [c for c in candidates if first is not None and first.key in (c.node.key, c.end.key)]
    return Exponentials(tuple(_provoke(lab, trace, situation, candidate) for candidate in candidates))


def _provoke(lab: Lab, trace: Trace, situation: Situation, candidate: _Candidate) -> Exponential:
    largest = _largest(candidate.argument)
    source = trace.nodes[candidate.argument.node].key
    factor = max(1.0, TRAINED / largest) if largest > 0 else 1.0
    enlarged = lab.under(Treatment(edits={source: _enlarge(factor)})).run(situation)
    bad = 0.0
    if enlarged.output is not None:
        real = real_outputs(lab, enlarged.output, situation)
        bad = float((~torch.isfinite(enlarged.output).all(-1) & real).sum() / real.sum().clamp(min=1))
    node = candidate.node
    return Exponential(
        node.key, source, candidate.kind, candidate.dim, node.place, node.foreign, largest, largest * factor, bad
    )


def _enlarge(factor: float) -> Edit:
    def edit(op: Operation) -> object:
        # what an in-place operation returns is not what its caller goes on with
        in_place = op.function._schema.name.endswith("_")
        return op.output.mul_(factor) if in_place else op.output * factor

    return edit


def _largest(ref: Ref) -> float:
    """The largest positive argument, which is what overflows; where there is none to speak of, the largest size."""
    values = ref.tensor.detach().double()
    values = values[torch.isfinite(values) & (values.abs() < MASKED)]
    if not values.numel():
        return 0.0
    top, size = float(values.max()), float(values.abs().max())
    return top if top > size / 10 else size


# ---- finding ---------------------------------------------------------------------------------------------------


def _candidates(trace: Trace) -> Iterator[_Candidate]:
    for node in trace.nodes:
        op = base_name(node.op)
        if op == "div" and len(node.refs) == 2:
            found = _exponentials_over_their_sum(trace, node)
        elif op in ("log", "log2", "log10"):
            found = _log_of_softmax(trace, node)
        else:
            continue
        if found is not None and found.argument.node >= 0 and not _is_bounded(trace, found.argument):
            yield found


def _exponentials_over_their_sum(trace: Trace, node: Node) -> _Candidate | None:
    above, below = (_back(trace, ref, VIEWS | MASKS) for ref in node.refs)
    below = _skip_additions(trace, below)
    if above is None or below is None or base_name(above.op) != "exp" or below.op != "sum":
        return None
    summed = _back(trace, below.refs[0], VIEWS | MASKS)
    if summed is None or summed.index != above.index or not above.taint & CONTENT:
        return None
    dims = below.args[1] if len(below.args) > 1 else [-1]
    dim = int(dims[0]) if isinstance(dims, list | tuple) and dims else -1
    return _Candidate(above, node, above.refs[0], "exp", dim)


def _skip_additions(trace: Trace, node: Node | None) -> Node | None:
    """The sum below what was added to it or bounded, against division by zero."""
    while node is not None and base_name(node.op) in ("add", "clamp", "clamp_min", "maximum") and node.refs:
        node = _back(trace, node.refs[0], VIEWS | MASKS)
    return node


def _log_of_softmax(trace: Trace, node: Node) -> _Candidate | None:
    soft = _back(trace, node.refs[0], VIEWS)
    if soft is None or soft.op not in SOFTMAXES or not soft.taint & CONTENT:
        return None
    return _Candidate(node, node, soft.args[0], "log", int(soft.args[1]))


def _back(trace: Trace, ref: Ref, through: set[str]) -> Node | None:
    """The first operation that is not one of `through`, along the largest floating operand."""
    while ref.node >= 0:
        node = trace.nodes[ref.node]
        floating = [r for r in node.refs if r.tensor.is_floating_point()]
        if base_name(node.op) not in through or not floating:
            return node
        ref = max(floating, key=lambda r: (bool(r.taint & CONTENT), r.tensor.numel()))
    return None


def _is_bounded(trace: Trace, ref: Ref) -> bool:
    """Whether a bound, or the subtraction of the maximum, stands close behind the argument."""
    for _ in range(8):
        if ref.node < 0:
            return False
        node = trace.nodes[ref.node]
        op = base_name(node.op)
        if op in BOUNDS or (op == "sub" and any(_is_maximum(trace, r) for r in node.refs[1:])):
            return True
        if op not in VIEWS | MASKS | {"add", "sub", "div"} or not node.refs:
            return False
        ref = max(node.refs, key=lambda r: (bool(r.taint & CONTENT), r.tensor.numel()))
    return False


def _is_maximum(trace: Trace, ref: Ref) -> bool:
    node = _back(trace, ref, VIEWS)
    return node is not None and base_name(node.op) in ("amax", "max", "logsumexp", "topk", "cummax")
