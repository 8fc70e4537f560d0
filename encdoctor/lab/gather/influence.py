"""Measures influence: change the content of some positions and see which outputs move.

Replacing the content of padding moves the real outputs of a sound model by exactly 0.0, in float32 too, as both runs
use the same shapes. Contents are large finite numbers, never NaN: 0·NaN spreads in nearly every sound model.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from encdoctor.contract import InputKind
from encdoctor.evidence.influence import InfluenceMatrix, PaddingInfluence, SampleMixing
from encdoctor.lab.lab import Lab, NotMeasured, Ran
from encdoctor.lab.repair.intervene import disturb_padding
from encdoctor.lab.situations import Situation

LONGEST_MATRIX = 16


def gather_padding(lab: Lab) -> PaddingInfluence:
    """Replaces padding in a batch of unequal lengths; then real content, to see that the probe can see."""
    if lab.contract.mask is None:
        return PaddingInfluence(False, "the encoder is not told what is padding")
    if not lab.contract.has_sequence:
        return PaddingInfluence(False, "the input has no sequence axis")
    padded = _finite_way(lab, replace(lab.padded, dtype=lab.dtype))
    on_padding = padding_change(lab, padded)
    own = padding_change(lab, replace(padded, dtype=lab.own_dtype)) if on_padding > 0 else 0.0
    return PaddingInfluence(
        True,
        "",
        on_padding=on_padding,
        on_padding_own=own,
        on_real=_real_change(lab, padded),
    )


def _finite_way(lab: Lab, situation: Situation) -> Situation:
    """The situation without torch's fused path where that path alone gives NaN at real positions: rows that are wholly
    masked by mistake would hide what else the mask does."""
    base = lab.run(situation).tensor
    finite = torch.isfinite(base).all(-1) | ~real_outputs(lab, base, situation)
    return situation if bool(finite.all()) else replace(situation, fast_path=False)


def padding_change(lab: Lab, situation: Situation) -> float:
    """Largest relative change of real outputs when padding's content is another, over two other contents."""
    base, others = padding_runs(lab, situation)
    real = real_outputs(lab, base.tensor, situation)
    return max(relative_change(base.tensor, other.tensor, real) for other in others)


def padding_runs(lab: Lab, situation: Situation) -> tuple[Ran, list[Ran]]:
    """A run and two that differ from it in padding's content alone, all by the same kernels."""
    runs = []
    # where padding is an id, the first run is disturbed as well: an edited run takes the unfused path
    for seed in (3 if _padding_is_an_id(lab) else 0, 1, 2):
        treated, changed = with_other_padding(lab, situation, seed)
        runs.append(treated.run(changed))
    return runs[0], runs[1:]


def with_other_padding(lab: Lab, situation: Situation, seed: int) -> tuple[Lab, Situation]:
    """The lab and situation in which padding's content is that of `seed`."""
    if _padding_is_an_id(lab):
        return disturb_padding(lab, situation, seed), situation
    return lab, replace(situation, padding_seed=seed)


def real_outputs(lab: Lab, output: Tensor, situation: Situation) -> Tensor:
    """(B, S_out) bool: outputs that belong to real positions. All of a pooled output."""
    from encdoctor.lab.batches import keep_mask

    keep = keep_mask(situation, lab.device)
    positions, length = output.shape[1], situation.length
    if lab.contract.pooled or positions == 1:
        return keep.new_ones(keep.shape[0], positions)
    if positions == length:
        return keep
    offset = lab.contract.output_offset
    if positions > length and offset is not None:
        extra = keep.new_ones(keep.shape[0], positions - length)
        return torch.cat([extra[:, :offset], keep, extra[:, offset:]], 1)
    if positions < length:
        # a strided stem: an output is real when all that it can have read is real
        stride = length / positions
        counts = torch.floor(keep.sum(1) / stride).long()
        return torch.arange(positions, device=keep.device)[None] < counts[:, None]
    return keep.new_ones(keep.shape[0], positions)


def relative_change(base: Tensor, other: Tensor, where: Tensor) -> float:
    """Largest |base − other| at `where`, relative to the largest |base|; rows that are not finite do not count."""
    if base.shape != other.shape:
        raise NotMeasured(f"the output's shape changed from {tuple(base.shape)} to {tuple(other.shape)}")
    moved = (base.double() - other.double()).abs().amax(-1)
    moved = torch.where(torch.isfinite(moved) & where, moved, 0.0)
    size = torch.nan_to_num(base.double().abs(), posinf=0.0).amax()
    return float(moved.amax() / size) if float(size) > 0 else 0.0


def gather_matrix(lab: Lab) -> InfluenceMatrix:
    """One sample, one position changed at a time; copies of the sample run as one batch where samples do not mix."""
    contract = lab.contract
    if not contract.has_sequence:
        return InfluenceMatrix(None, None, 0, 0, "the input has no sequence axis")
    length = lab.full.length
    if length > LONGEST_MATRIX:
        return InfluenceMatrix(
            None, None, 0, length, f"the input is at least {length} long; the matrix is not measured"
        )
    real = max(1, round(length * 9 / 13))
    full = _matrix(lab, length, length, masked=False)
    padded = _matrix(lab, length, real, masked=True) if contract.mask is not None else None
    return InfluenceMatrix(padded, full, real, length)


def _matrix(lab: Lab, length: int, real: int, masked: bool) -> NDArray[np.float64] | None:
    # three samples, of which the first is watched: the others keep the batch from being a batch of one
    base = Situation(lengths=(real, length, real), length=length, masked=masked, dtype=lab.dtype)
    reference = lab.run(base)
    if reference.output is None:
        return None
    columns = []
    for block in _blocks(length, real, together=lab.get(SampleMixing).across == 0):
        columns.extend(_columns(lab, base, block))
    matrix = torch.stack(columns, 1)
    if matrix.shape[0] == 1 or lab.contract.pooled:
        return np.asarray(matrix[:1], dtype=np.float64)
    offset = lab.contract.output_offset
    if matrix.shape[0] > length and offset is not None:
        matrix = matrix[offset : offset + length]
    return np.asarray(matrix, dtype=np.float64)


def _blocks(length: int, real: int, together: bool) -> list[list[int]]:
    positions = list(range(length))
    return [positions] if together else [[p] for p in positions]


def _columns(lab: Lab, base: Situation, block: list[int]) -> list[Tensor]:
    """How far each output of the watched sample moves for each position of the block."""
    real, length = base.lengths[0], base.length
    if len(block) == 1:
        situation = replace(base, replaced=((0, block[0]),))
        return [_moved(lab, base, situation, 0, 0, block)]
    # one copy an input position, and one that is left alone
    copies = replace(base, lengths=(real,) * (length + 1), seed=base.seed)
    changed = replace(copies, replaced=tuple((j, j) for j in block))
    return [_moved(lab, copies, changed, j, j, block) for j in block]


def _moved(lab: Lab, base: Situation, changed: Situation, row: int, sample: int, block: list[int]) -> Tensor:
    plain = treated = lab
    if _padding_is_an_id(lab) and base.padded:
        # both runs are edited, one without effect: an edited run takes the unfused path
        plain, treated = (disturb_padding(lab, s, 1, only=s.replaced) for s in (base, changed))
    before, after = plain.run(base).tensor, treated.run(changed).tensor
    size = torch.nan_to_num(before.double().abs()).amax()
    moved = (before[sample].double() - after[sample].double()).abs().amax(-1) / size.clamp(min=1e-300)
    return torch.nan_to_num(moved, nan=0.0)


def gather_mixing(lab: Lab) -> SampleMixing:
    """Changes the whole of the first sample and watches the others."""
    situation = replace(lab.full, dtype=lab.dtype)
    base = lab.run(situation).tensor
    if lab.contract.has_sequence:
        changed = replace(situation, replaced=tuple((0, p) for p in range(situation.length)))
        other = lab.run(changed).tensor
    else:
        other = _other_first_sample(lab, situation)
    rows = torch.zeros(base.shape[:2], dtype=torch.bool, device=base.device)
    rows[1:] = True
    return SampleMixing(relative_change(base, other, rows), relative_change(base, other, ~rows))


def _other_first_sample(lab: Lab, situation: Situation) -> Tensor:
    from encdoctor.lab.batches import make_call

    call, donor = (make_call(lab.contract, replace(situation, seed=s), lab.device) for s in (situation.seed, 7))
    axis = lab.contract.shape.index("B")
    call.content.narrow(axis, 0, 1).copy_(donor.content.narrow(axis, 0, 1))
    with torch.no_grad():
        return lab.forward(lab.copy_of(situation.dtype), situation, call).tensor


def _padding_is_an_id(lab: Lab) -> bool:
    mask = lab.contract.mask
    return mask is not None and mask.pad_id is not None and lab.contract.input is InputKind.IDS


def _real_change(lab: Lab, situation: Situation) -> float:
    """Changes one real position of every sample that has two, and watches the other real ones."""
    base = lab.run(situation).tensor
    changed = lab.run(replace(situation, replaced=tuple((b, 0) for b in range(situation.batch)))).tensor
    return relative_change(base, changed, real_outputs(lab, base, situation))
