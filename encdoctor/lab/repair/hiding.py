"""Edits that hide keys the right way: what a mask that works would have done at a site."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from encdoctor.lab.lab import Lab, NotMeasured
from encdoctor.lab.layout import read_positions
from encdoctor.lab.trace import Edit, Operation

Hide = Callable[[Tensor, Tensor], Tensor]


def masking_edit(lab: Lab, kind: str) -> Edit:
    """The edit of that kind: "…_keys" at a softmax, "…_instead" and "without_mask" at a mask, others anywhere."""
    plain: dict[str, Edit] = {"pool_real": pool_real, "without_mask": without_mask, "zero_padding": zero_padding}
    if kind in plain:
        return plain[kind]
    hide = _hider(lab)

    def keys(op: Operation) -> Tensor:
        return torch.softmax(hide(op.args[0], op.keep), op.args[1]).nan_to_num(0.0)

    def instead(op: Operation) -> Tensor:
        return hide(_scores_in(op), op.keep).to(op.output.dtype)

    def causal_keys(op: Operation) -> Tensor:
        return torch.softmax(_hide_later(hide(op.args[0], op.keep)), op.args[1])

    def causal_instead(op: Operation) -> Tensor:
        return _hide_later(hide(_scores_in(op), op.keep)).to(op.output.dtype)

    return {
        "mask_keys": keys, "mask_instead": instead, "causal_keys": causal_keys, "causal_instead": causal_instead,
    }[kind]  # fmt: skip


def pool_real(op: Operation) -> Tensor:
    """A mean, sum, maximum or softmax over positions, taken over the real ones."""
    x = op.args[0]
    axes = [axis for axis in range(x.dim()) if x.shape[axis] == op.keep.shape[1]]
    if not axes or x.shape[0] != op.keep.shape[0]:
        raise NotMeasured("this pooling cannot be repeated over real positions alone")
    real = op.keep.reshape(op.keep.shape[0], *(op.keep.shape[1] if a == axes[0] else 1 for a in range(1, x.dim())))
    name = op.function._schema.name.split("::")[-1]
    if name in ("max", "amax", "_softmax"):
        result: Tensor = op.function(x.masked_fill(~real, torch.finfo(x.dtype).min), *op.args[1:], **op.kwargs)
        return result
    total = (x * real).sum(axes[0], keepdim=x.dim() == op.output.dim())
    count = real.sum(axes[0], keepdim=x.dim() == op.output.dim())
    pooled: Tensor = total / count if name == "mean" else total
    return pooled


def without_mask(op: Operation) -> Tensor:
    """The scores as they were before the mask."""
    return _scores_in(op)


def zero_padding(op: Operation) -> Any:
    """The operation over an input whose padded positions are zero."""
    x, (samples, length) = op.args[0], op.keep.shape
    axes = [axis for axis in range(1, x.dim()) if x.shape[axis] == length]
    if x.shape[0] != samples or not axes:
        raise NotMeasured("the padded positions of this operation are not known")
    real = op.keep.reshape(samples, *(length if axis == axes[0] else 1 for axis in range(1, x.dim())))
    return op.function(x * real, *op.args[1:], **op.kwargs)


def _hider(lab: Lab) -> Hide:
    """Hides keys that are not real in scores (B, …, K), or folded ones, as this model lays them out."""
    situation = replace(lab.padded, dtype=lab.dtype)
    reading = read_positions(lab, situation, lab.trace(situation))

    def hide(scores: Tensor, keep: Tensor) -> Tensor:
        samples, keys = keep.shape[0], scores.shape[-1]
        real = reading.real.get(keys) if torch.equal(keep, reading.keep) else _real_keys(keep, keys)
        if real is None or scores.shape[0] % samples:
            return scores
        heads = scores.shape[0] // samples
        real = real.repeat(heads, 1) if reading.heads_slower else real.repeat_interleave(heads, 0)
        shaped = real.reshape(real.shape[0], *(1,) * (scores.dim() - 2), keys)
        return scores.masked_fill(~shaped, torch.finfo(scores.dtype).min)

    return hide


def _real_keys(keep: Tensor, keys: int) -> Tensor:
    """In another batch than the one that was read: further tokens stand in front."""
    extra = keep.new_ones(keep.shape[0], max(keys - keep.shape[1], 0))
    return torch.cat([extra, keep], 1)[:, :keys]


def _scores_in(op: Operation) -> Tensor:
    """The scores that a masking operation was given: its largest floating argument, before any axis was added."""
    tensors = [a for a in op.args if isinstance(a, Tensor) and a.is_floating_point()]
    if not tensors:
        output: Tensor = op.output
        return output
    largest: Tensor = max(tensors, key=lambda t: t.numel())
    return largest if largest.dim() < op.output.dim() else largest.expand(op.output.shape)


def _hide_later(scores: Tensor) -> Tensor:
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(later, torch.finfo(scores.dtype).min)
