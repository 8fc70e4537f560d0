"""Makes inputs for a call contract in a situation: contents, masks, lengths, further arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from encdoctor.contract import CallContract, InputKind, MaskContract, MaskMeaning
from encdoctor.lab.situations import Situation

# How far replaced content lies from the usual N(0, 1): large enough to be seen through any norm, small enough to
# stay finite in half precision.
REPLACED_SCALE = 3.0


@dataclass
class Call:
    """Arguments for one forward, and what they mean.

    `keep` is (B, S) bool, True at real positions. `content` is the main input as it is passed.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    keep: Tensor
    content: Tensor


def make_call(contract: CallContract, situation: Situation, device: str = "cpu") -> Call:
    """Builds the arguments of forward; the same situation gives the same bits."""
    keep = keep_mask(situation, device)
    # contents are drawn on the CPU, so that every device sees the same numbers
    content = make_content(contract, situation, keep.cpu()).to(device)
    named: dict[str, Any] = {}
    if contract.mask is not None and contract.mask.argument and (situation.masked or contract.mask.required):
        named[contract.mask.argument] = make_mask(contract.mask, keep if situation.masked else keep | True, situation)
    for extra in contract.extras:
        named[extra.argument] = _extra(extra.like, extra.value, contract, content, keep)
    if contract.pack:
        return Call(({contract.argument: content, **named},), {}, keep, content)
    if contract.keyword:
        return Call((), {contract.argument: content, **named}, keep, content)
    return Call((content,), named, keep, content)


def keep_mask(situation: Situation, device: str = "cpu") -> Tensor:
    """(B, S) bool, True at real positions."""
    places = torch.arange(situation.length, device=device)
    lengths = torch.tensor(situation.lengths, device=device)[:, None]
    if situation.side == "left":
        return places[None, :] >= situation.length - lengths
    return places[None, :] < lengths


def make_content(contract: CallContract, situation: Situation, keep: Tensor) -> Tensor:
    """The main input, in the shape and dtype that the contract says."""
    axes = [_size(axis, situation) for axis in contract.shape]
    real = _draw(contract, axes, situation.seed, situation.dtype)
    if contract.has_sequence:
        padding = _draw(contract, axes, 1_000_003 + situation.padding_seed, situation.dtype)
        other = _draw(contract, axes, 2_000_003 + situation.seed, situation.dtype, scale=REPLACED_SCALE)
        if contract.input is InputKind.IDS:
            other = _different(real, other, contract)
        is_real = along(contract, keep, real)
        real = torch.where(is_real, real, padding)
        if situation.replaced:
            changed = torch.zeros_like(keep)
            for sample, position in situation.replaced:
                changed[sample, position] = True
            real = torch.where(along(contract, changed, real), other, real)
        if contract.mask is not None and contract.mask.pad_id is not None:
            pad = torch.full_like(real, contract.mask.pad_id)
            real = torch.where(is_real, real, pad)
    return real if situation.contiguous else _strided(real)


def make_mask(mask: MaskContract, keep: Tensor, situation: Situation) -> Any:
    """The mask, lengths or additive bias that tells which of `keep` is real."""
    if mask.true is MaskMeaning.LENGTHS:
        lengths = keep.sum(1)
        return lengths.tolist() if mask.dtype == "list" else lengths
    shaped = _lay_out(keep, mask.layout)
    if mask.true is MaskMeaning.ADDITIVE:
        dtype = _torch_dtype(situation.dtype)
        return torch.zeros(shaped.shape, dtype=dtype, device=keep.device).masked_fill(~shaped, torch.finfo(dtype).min)
    value = ~shaped if mask.true is MaskMeaning.DROP else shaped
    if mask.dtype == "int64":
        return value.long()
    if mask.dtype == "float":
        return value.to(_torch_dtype(situation.dtype))
    return value


def _lay_out(keep: Tensor, layout: str) -> Tensor:
    """(B, S) laid out as the letters say: "BS", "SB", "B1S", "1SB", …; the last S of "BSS" and "B1SS" is the keys'."""
    if layout.count("S") == 2:
        square = keep[:, None, :].expand(-1, keep.shape[1], -1)
        return square if layout == "BSS" else square[:, None]
    keep = keep.t() if layout.index("S") < layout.index("B") else keep
    for axis, letter in enumerate(layout):
        if letter == "1":
            keep = keep.unsqueeze(axis)
    return keep


def _draw(contract: CallContract, axes: list[int], seed: int, dtype: str, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if contract.input is InputKind.IDS:
        ordinary = torch.tensor(_ordinary_ids(contract))
        return ordinary[torch.randint(len(ordinary), axes, generator=generator)]
    # drawn in float64 and rounded, so that every dtype sees the same numbers
    return (scale * torch.randn(axes, generator=generator, dtype=torch.float64)).to(_torch_dtype(dtype))


def _different(ids: Tensor, drawn: Tensor, contract: CallContract) -> Tensor:
    """`drawn`, but nowhere equal to `ids`."""
    ordinary = torch.tensor(_ordinary_ids(contract))
    following = ordinary[(torch.searchsorted(ordinary, ids) + 1) % len(ordinary)]
    return torch.where(drawn == ids, following, drawn)


def _ordinary_ids(contract: CallContract) -> list[int]:
    """The ids that stand for real tokens: neither padding nor special, where the vocabulary has others."""
    vocab = contract.vocab or 2
    pad = contract.mask.pad_id if contract.mask is not None else None
    ordinary = [i for i in range(contract.low, vocab) if i != pad and i not in contract.avoid]
    return ordinary or list(range(vocab))


def along(contract: CallContract, flags: Tensor, content: Tensor) -> Tensor:
    """(B, S) flags, broadcast over the content's other axes."""
    batch, sequence = contract.shape.index("B"), contract.shape.index("S")
    shaped = flags if batch < sequence else flags.t()
    for axis in range(content.dim()):
        if axis not in (batch, sequence):
            shaped = shaped.unsqueeze(axis)
    return shaped


def _extra(like: str, value: Any, contract: CallContract, content: Tensor, keep: Tensor) -> Any:
    if like == "value":
        return value
    shape = keep.shape if contract.batch_first else keep.t().shape
    if like == "zeros":
        return torch.zeros(shape, dtype=torch.long, device=keep.device)
    if like == "ones":
        return torch.ones(shape, dtype=torch.long, device=keep.device)
    if like == "positions":
        return torch.arange(keep.shape[1], device=keep.device).expand(keep.shape).reshape(shape)
    if like == "content":
        return content
    if like == "lengths":
        return keep.sum(1)
    raise ValueError(f"unknown extra argument kind {like!r}")


def _size(axis: str | int, situation: Situation) -> int:
    if axis == "B":
        return situation.batch
    if axis == "S":
        return situation.length
    return int(axis)


def _strided(content: Tensor) -> Tensor:
    """The same numbers with the first two axes swapped in memory, as a transpose leaves them."""
    if content.dim() < 2:
        return content.repeat_interleave(2)[::2]
    return content.transpose(0, 1).contiguous().transpose(0, 1)


def _torch_dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype
