"""Passes the mask in other dtypes, or not at all, and fills padding with zeros."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from encdoctor.contract import InputKind, MaskMeaning
from encdoctor.evidence.masks import MaskDtype, MaskDtypes, NoMask, ZeroPadding
from encdoctor.evidence.runs import ForwardRuns
from encdoctor.lab.batches import Call, make_call
from encdoctor.lab.gather.influence import real_outputs, relative_change
from encdoctor.lab.lab import Lab
from encdoctor.lab.nonfinite import first_bad
from encdoctor.lab.sites import base_name, score_paths
from encdoctor.lab.situations import Situation
from encdoctor.lab.trace import CONTENT, Trace
from encdoctor.model import Place

DTYPES = ("bool", "int64", "float")
# Below this, relative, the outputs are the same but for rounding in float32.
SAME = 1e-4


def gather_dtypes(lab: Lab) -> MaskDtypes:
    """Real outputs under the usual mask and under the same one in other dtypes."""
    mask = lab.contract.mask
    if mask is None or mask.argument is None or mask.true not in (MaskMeaning.KEEP, MaskMeaning.DROP):
        return MaskDtypes(False, "no mask of yes and no is passed")
    situation = replace(lab.padded, dtype=lab.own_dtype)
    base = lab.run(situation).tensor
    real = real_outputs(lab, base, situation)
    tried = [_in_dtype(lab, situation, base, real, dtype) for dtype in DTYPES if dtype != mask.dtype]
    return MaskDtypes(True, "", mask.dtype, tuple(tried))


def _in_dtype(lab: Lab, situation: Situation, base: Tensor, real: Tensor, dtype: str) -> MaskDtype:
    call = _call_in(lab, situation, dtype)
    with torch.no_grad():
        ran = lab.forward(lab.copy_of(situation.dtype), situation, call)
    if ran.output is None:
        return MaskDtype(dtype, 0.0, ran.raised)
    if ran.output.shape != base.shape:
        return MaskDtype(dtype, 1.0)
    change = relative_change(base, ran.output, real)
    if change <= SAME and bool(torch.isfinite(ran.output[real]).all()):
        return MaskDtype(dtype, change)
    trace = lab.record(situation, _call_in(lab, situation, dtype))
    added = list(_added(trace))
    return MaskDtype(
        dtype,
        change,
        None,
        tuple(place for place, _, _ in added),
        tuple(key for _, key, _ in added),
        bool(added) and all(by_torch for _, _, by_torch in added),
    )


def _call_in(lab: Lab, situation: Situation, dtype: str) -> Call:
    mask = lab.contract.mask
    assert mask is not None
    return make_call(replace(lab.contract, mask=replace(mask, dtype=dtype)), situation, lab.device)


def _added(trace: Trace) -> Iterator[tuple[Place, str, bool]]:
    """Where something made from the mask alone is added to scores, and whether torch's attention does it."""
    for path in score_paths(trace):
        for node, score in path.steps:
            masks = [r for r in node.refs if r.tensor is not score.tensor and r.taint and not r.taint & CONTENT]
            if base_name(node.op) in ("add", "sub", "baddbmm") and masks:
                yield node.place, node.key, path.softmax.foreign or path.softmax.op == "_safe_softmax"


# ---- no mask ---------------------------------------------------------------------------------------------------


def gather_no_mask(lab: Lab) -> NoMask:
    """Both calls on a batch without padding, in float64; the model's own dtype after a difference."""
    mask = lab.contract.mask
    if mask is None or mask.argument is None:
        return NoMask(False, "no mask is passed")
    if mask.required:
        return NoMask(False, "the mask cannot be left out")
    runs = lab.get(ForwardRuns)
    for name in ("plain", "masked"):
        tried = runs.named(name)
        if tried is None or tried.raised is not None:
            return NoMask(False, "one of the two calls does not go through")
    change = _without_mask(lab, lab.dtype)
    if change <= SAME * 1e-4:
        return NoMask(True, change=change)
    starts = _first_difference(lab)
    return NoMask(True, "", change, _without_mask(lab, lab.own_dtype), starts)


def _without_mask(lab: Lab, dtype: str) -> float:
    full = replace(lab.full, dtype=dtype)
    masked, plain = lab.run(full).tensor, lab.run(replace(full, masked=False)).tensor
    if masked.shape != plain.shape:
        return 1.0
    again = lab.run(replace(full, padding_seed=9)).tensor  # nothing is padded: the same call once more
    if relative_change(masked, again, torch.ones(masked.shape[:2], dtype=torch.bool)) > 0:
        return 0.0
    return relative_change(masked, plain, torch.ones(masked.shape[:2], dtype=torch.bool, device=masked.device))


def _first_difference(lab: Lab) -> Place | None:
    """The first operation on content that both calls make and that differs, else the first that only one makes."""
    full = replace(lab.full, dtype=lab.dtype)
    with_mask, without = lab.trace(full), lab.trace(replace(full, masked=False))
    seen = {node.key: node for node in without.nodes}
    parted: Place | None = None
    for node in with_mask.nodes:
        twin = seen.get(node.key)
        if not node.taint & CONTENT or node.tensor is None or not node.tensor.is_floating_point():
            continue
        if twin is None or twin.tensor is None or twin.tensor.shape != node.tensor.shape:
            parted = parted or node.place
        elif not torch.equal(twin.tensor, node.tensor):
            return node.place
    return parted


# ---- zeros in the padding --------------------------------------------------------------------------------------


def gather_zero_padding(lab: Lab) -> ZeroPadding:
    """Real outputs of a batch padded with zeros, or with the padding id; after that the operation where NaN starts."""
    contract = lab.contract
    if contract.mask is None or not contract.has_sequence:
        return ZeroPadding(False, "the encoder is not told what is padding")
    plain = lab.run(replace(lab.full, dtype=lab.own_dtype)).tensor
    if not bool(torch.isfinite(plain).all()):
        return ZeroPadding(False, "outputs are not finite without padding either")
    situation = replace(lab.padded, dtype=lab.own_dtype)
    model = lab.copy_of(situation.dtype)
    with torch.no_grad():
        ran = lab.forward(model, situation, _zeroed(lab, situation))
    if ran.output is None:
        return ZeroPadding(False, "forward raised")
    if bool(torch.isfinite(ran.output[real_outputs(lab, ran.output, situation)]).all()):
        return ZeroPadding(True)
    first = first_bad(lab, lab.record(situation, _zeroed(lab, situation)), model)
    usual = lab.run(situation).output
    other = usual is not None and bool(torch.isfinite(usual[real_outputs(lab, usual, situation)]).all())
    return ZeroPadding(True, "", True, first, other and contract.input is not InputKind.IDS)


def _zeroed(lab: Lab, situation: Situation) -> Call:
    """The padded call with zeros in its padding; ids keep their padding id."""
    call = make_call(lab.contract, situation, lab.device)
    if lab.contract.input is InputKind.IDS:
        return call
    batch, sequence = lab.contract.shape.index("B"), lab.contract.shape.index("S")
    shape = [1] * call.content.dim()
    shape[batch], shape[sequence] = call.keep.shape
    keep = call.keep if batch < sequence else call.keep.t()
    call.content.mul_(keep.reshape(shape).to(call.content.dtype))
    return call
