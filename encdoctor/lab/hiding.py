"""Edits that hide keys the right way: what a mask that works would have done at a site."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from encdoctor.lab.lab import Lab
from encdoctor.lab.layout import read_positions
from encdoctor.lab.trace import Edit, Operation

Hide = Callable[[Tensor, Tensor], Tensor]


def masking_edit(lab: Lab, kind: str) -> Edit:
    """The edit of that kind: "mask_keys" and "causal_keys" at a softmax, "mask_instead" and "causal_instead" at a mask."""
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
    """The scores that a masking operation was given: its largest floating argument."""
    tensors = [a for a in op.args if isinstance(a, Tensor) and a.is_floating_point()]
    if not tensors:
        return op.output
    largest = max(tensors, key=lambda t: t.numel())
    return largest.expand(op.output.shape)


def _hide_later(scores: Tensor) -> Tensor:
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(later, torch.finfo(scores.dtype).min)
