"""Repairs and disturbances that are tried on a running model.

A `Trial` of a check is turned into a `Treatment` here. Kinds: `mask_keys` (hide padded keys before the softmax),
`mask_instead` (in place of what a masking operation did, hide padded keys), `causal_instead` (hide later and padded
keys), `causal_keys` (the same at the softmax), `flip_mask` (pass the opposite), `scale` (multiply an operation's output), `reshape_views` (reshape where view
was called), `bypass` (let gradients through a cut), `finite` (clamp an operation's output to the dtype's range).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from encdoctor.contract import MaskMeaning
from encdoctor.lab.batches import keep_mask
from encdoctor.lab.cuts import Bypass
from encdoctor.lab.lab import Lab, NotMeasured, Treatment
from encdoctor.lab.situations import Situation
from encdoctor.lab.trace import Edit, Operation
from encdoctor.model import Trial


def treatment(lab: Lab, trial: Trial) -> Treatment:
    """The treatment that a trial asks for. Raises NotMeasured for a kind that cannot be tried on this model."""
    if trial.kind == "flip_mask":
        return Treatment(contract=_flipped(lab))
    if trial.kind == "reshape_views":
        return Treatment(function_mode=ReshapeViews)
    if trial.kind == "bypass":
        return Treatment(function_mode=lambda: Bypass(lab.origin, trial.at))
    makers: dict[str, Callable[[Trial], Edit]] = {
        "mask_keys": lambda t: _mask_keys,
        "mask_instead": lambda t: _mask_instead,
        "causal_instead": lambda t: _causal_instead,
        "causal_keys": lambda t: _causal_keys,
        "float32": lambda t: _in_float32,
        "scale": lambda t: _scaled(t.value or 1.0),
        "finite": lambda t: _finite,
    }
    if trial.kind not in makers:
        raise NotMeasured(f"no intervention is called {trial.kind!r}")
    edit = makers[trial.kind](trial)
    return Treatment(edits=dict.fromkeys(trial.at, edit))


# ---- edits -----------------------------------------------------------------------------------------------------


def _mask_keys(op: Operation) -> Tensor:
    return torch.softmax(_hide(op.args[0], op.keep), op.args[1]).nan_to_num(0.0)


def _mask_instead(op: Operation) -> Tensor:
    return _hide(_scores_in(op), op.keep).to(op.output.dtype)


def _causal_instead(op: Operation) -> Tensor:
    return _hide_later(_hide(_scores_in(op), op.keep)).to(op.output.dtype)


def _causal_keys(op: Operation) -> Tensor:
    return torch.softmax(_hide_later(_hide(op.args[0], op.keep)), op.args[1])


def _scaled(factor: float) -> Edit:
    return lambda op: op.output * factor


def _finite(op: Operation) -> Tensor:
    low = torch.finfo(op.output.dtype).min
    return torch.nan_to_num(op.output, nan=0.0, neginf=low, posinf=-low)


def _in_float32(op: Operation) -> Any:
    def widen(value: Any) -> Any:
        half = isinstance(value, Tensor) and value.dtype in (torch.float16, torch.bfloat16)
        return value.float() if half else value

    result = op.function(*map(widen, op.args), **{name: widen(value) for name, value in op.kwargs.items()})
    return result.to(op.output.dtype) if isinstance(result, Tensor) else op.output


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


def _hide(scores: Tensor, keep: Tensor) -> Tensor:
    """Scores (B, …, K), or folded (B·H, Q, K), with keys hidden that are not real."""
    keys = scores.shape[-1]
    if keys != keep.shape[1]:
        extra = keep.new_ones(keep.shape[0], max(keys - keep.shape[1], 0))
        keep = torch.cat([extra, keep], 1)[:, :keys]
    if scores.shape[0] != keep.shape[0] and scores.shape[0] % keep.shape[0] == 0:
        keep = keep.repeat_interleave(scores.shape[0] // keep.shape[0], 0)
    if scores.shape[0] != keep.shape[0]:
        return scores
    shaped = keep.reshape(keep.shape[0], *(1,) * (scores.dim() - 2), keys)
    return scores.masked_fill(~shaped, torch.finfo(scores.dtype).min)


# ---- other treatments ------------------------------------------------------------------------------------------


def _flipped(lab: Lab) -> Any:
    mask = lab.contract.mask
    opposite = {MaskMeaning.KEEP: MaskMeaning.DROP, MaskMeaning.DROP: MaskMeaning.KEEP}
    if mask is None or mask.true not in opposite:
        raise NotMeasured("this mask has no opposite")
    return replace(lab.contract, mask=replace(mask, true=opposite[mask.true]))


class ReshapeViews(TorchFunctionMode):
    """Calls reshape wherever the model calls view."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.view and len(args) > 1 and not isinstance(args[1], torch.dtype):
            return args[0].reshape(*args[1:])
        return func(*args, **(kwargs or {}))


def disturb_padding(lab: Lab, situation: Situation, seed: int, only: Iterable[tuple[int, int]] | None = None) -> Lab:
    """The lab with the looked-up vectors of padding replaced by noise: where padding is an id, its content is a vector.

    The mask is still read off the untouched ids.
    """
    plain = replace(situation, replaced=())
    trace, keep = lab.trace(plain), keep_mask(situation, lab.device)
    hit = ~keep
    if only is not None:
        chosen = torch.zeros_like(hit)
        for sample, position in only:
            chosen[sample, position] = True
        hit = hit & chosen
    from encdoctor.lab.batches import make_content

    ids = make_content(lab.contract, plain, keep)
    keys = [n.key for n in trace.nodes if n.op in ("embedding", "index", "index_select") and reads(n.refs, ids)]
    if not keys:
        raise NotMeasured("no embedding lookup of the ids was recorded")
    batch_first = lab.contract.batch_first

    def noise(op: Operation) -> Tensor:
        output: Tensor = op.output
        rows = hit if tuple(output.shape[:2]) == tuple(hit.shape) or batch_first else hit.t()
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randn(output.shape, generator=generator, dtype=torch.float64).to(output)
        spread = output.std().clamp(min=1e-6) * 3
        return torch.where(rows[..., None], drawn * spread, output)

    return lab.under(Treatment(edits=dict.fromkeys(keys, noise)))


def reads(refs: list[Any], ids: Tensor) -> bool:
    """Whether one of the operands is the ids themselves."""
    return any(
        r.tensor.shape in (ids.shape, ids.t().shape) and not r.tensor.is_floating_point() and
        (torch.equal(r.tensor, ids) or torch.equal(r.tensor, ids.t()))
        for r in refs
    )
