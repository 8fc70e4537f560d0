"""Permutes tokens, and repeats one sentence in every row: does order play a role, and only order?"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from encdoctor.contract import InputKind
from encdoctor.evidence.positions import Order
from encdoctor.lab.batches import Call, make_call
from encdoctor.lab.compare import axis_of, paired
from encdoctor.lab.lab import Lab, NotMeasured
from encdoctor.lab.situations import Situation
from encdoctor.lab.trace import CONTENT, Node, Trace
from encdoctor.model import Place

# What reordered sums may move, relative: float64 softmax and matrix products stay below 1e-13 here, float32 below 3e-6;
# an encoder that amplifies a change 1e4-fold is still below 1e-8, and rows that differ by a position differ by 1e-3.
NOISE = {"float64": 1e-8, "float32": 1e-5}


def gather_order(lab: Lab) -> Order:
    """A full batch three times: as it is, permuted, and with its first row everywhere."""
    contract = lab.contract
    if not contract.has_sequence or contract.input is InputKind.AUDIO:
        return Order(False, "the input has no tokens that could change places")
    # without a mask where none is needed: a mask that is read the wrong way hides all keys of a full batch
    situation = replace(lab.full, dtype=lab.dtype, masked=contract.mask is not None and contract.mask.required)
    base = lab.run(situation).tensor
    order = torch.roll(torch.arange(situation.length - 1, -1, -1), 3)
    after = _run(lab, situation, _permuted(lab, situation, order))
    deviation = _deviation(lab, base, after, order)
    if deviation is None:
        return Order(False, "outputs do not correspond to positions")
    if not _mixes(lab, situation, base):
        return Order(False, "no token reaches another on these weights")
    equal = _repeated(lab, situation)
    rows = _run(lab, situation, equal)
    # another seed: what is drawn at random in eval would make rows differ too
    again = _run(lab, replace(situation, seed=situation.seed + 1), equal)
    if not torch.equal(rows, again):
        return Order(False, "two equal calls differ")
    noise = NOISE.get(lab.dtype, 1e-2)
    differ = _relative(rows - rows[:1], rows)
    key, first, width = _lookup(lab, situation)
    node = _first_difference(lab.record(situation, equal), situation) if differ > noise else None
    return Order(
        True,
        permuted=deviation,
        rows=differ,
        noise=noise,
        key=key,
        first=first,
        projected=width not in lab.contract.shape,
        differ_keys=(node.key,) if node else (),
        differ=(node.place,) if node else (),
    )


def _mixes(lab: Lab, situation: Situation, base: Tensor) -> bool:
    """Whether a token's content reaches any output but its own; branches that start at zero mix nothing yet."""
    if lab.contract.pooled or base.shape[1] == 1:
        return True
    changed = replace(situation, replaced=tuple((b, 0) for b in range(situation.batch)))
    other = lab.run(changed).tensor
    return int((base != other).any(-1).any(0).sum()) > 1


def _run(lab: Lab, situation: Situation, call: Call) -> Tensor:
    with torch.no_grad():
        return lab.forward(lab.copy_of(situation.dtype), situation, call).tensor


def _permuted(lab: Lab, situation: Situation, order: Tensor) -> Call:
    call = make_call(lab.contract, situation, lab.device)
    call.content.copy_(call.content.index_select(lab.contract.shape.index("S"), order.to(lab.device)))
    return call


def _repeated(lab: Lab, situation: Situation) -> Call:
    call = make_call(lab.contract, situation, lab.device)
    axis = lab.contract.shape.index("B")
    call.content.copy_(call.content.narrow(axis, 0, 1).clone().expand_as(call.content))
    return call


def _deviation(lab: Lab, base: Tensor, after: Tensor, order: Tensor) -> float | None:
    length, positions = len(order), base.shape[1]
    if lab.contract.pooled or positions == 1:
        return _relative(after - base, base)
    offset = lab.contract.output_offset
    if offset is None or positions < length:
        return None
    expected = base.clone()
    expected[:, offset : offset + length] = base[:, offset : offset + length][:, order.to(base.device)]
    return _relative(after - expected, base)


def _relative(difference: Tensor, base: Tensor) -> float:
    size = base.double().abs().amax()
    if not bool(torch.isfinite(base).all()):
        raise NotMeasured("outputs are not finite")
    return float(difference.double().abs().amax() / size) if float(size) else 0.0


def _lookup(lab: Lab, situation: Situation) -> tuple[str, Place, int]:
    """The first operation that gives floating numbers for each token, and how many."""
    for node in lab.trace(situation).nodes:
        tensor = node.tensor
        if tensor is None or not node.taint & CONTENT or not tensor.is_floating_point() or tensor.dim() < 2:
            continue
        if axis_of(tensor, situation.length) is not None and node.place.line:
            return node.key, node.place, tensor.shape[-1]
    return "", Place(), 0


def _first_difference(trace: Trace, situation: Situation) -> Node | None:
    """The operation after which rows of equal sentences differ."""
    for node, _ in paired(trace, trace):
        tensor = node.tensor
        axis = None if tensor is None else axis_of(tensor, situation.batch)
        if tensor is None or axis is None or not node.taint & CONTENT or tensor.dtype is torch.bool:
            continue
        if axis_of(tensor, situation.length) is None:
            continue
        rows = tensor.movedim(axis, 0)
        if not bool((rows == rows[:1]).all()) and not torch.allclose(rows.double(), rows[:1].double()):
            return node
    return None
