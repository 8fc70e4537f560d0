"""Repairs and disturbances that are tried on a running model.

A `Trial` of a check is turned into a `Treatment` here. Kinds: `mask_keys` (hide padded keys before the softmax),
`mask_instead` (in place of what a masking operation did, hide padded keys), `causal_instead` (hide later and padded
keys), `causal_keys` (the same at the softmax), `flip_mask` (pass the opposite), `scale` (multiply an operation's
output), `reshape_views` (reshape where view was called), `out_of_place` (a new tensor instead of `x += y`),
`pool_real` (pool over real positions), `without_mask` (leave a mask out), `zero_padding` (set padded positions to
zero before an operation), `bypass` (let gradients through a cut), `finite` (clamp an operation's output to the
dtype's range), `softmax_dim` (softmax over the axis `value`), `without_chance` (dropout by its mean, other draws by
one fixed draw), `take_real` (the first or last real position in place of the one that was taken), `clone_inputs`
(hand the model copies), `forget` (put back what modules kept from the last call), `stable_exp` (subtract the
maximum), `stable_log` (no logarithm of 0).
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
from encdoctor.lab.gather.pooling import take_real
from encdoctor.lab.lab import Lab, NotMeasured, Treatment
from encdoctor.lab.repair.chance import without_chance
from encdoctor.lab.repair.repairs import REPAIRS
from encdoctor.lab.situations import Situation
from encdoctor.lab.state import clone_inputs, forget
from encdoctor.lab.trace import Edit, Operation
from encdoctor.model import Trial

MASKING = {
    "mask_keys", "mask_instead", "causal_keys", "causal_instead", "pool_real", "without_mask", "zero_padding",
}  # fmt: skip


def treatment(lab: Lab, trial: Trial) -> Treatment:
    """The treatment that a trial asks for. Raises NotMeasured for a kind that cannot be tried on this model."""
    if trial.kind == "flip_mask":
        return Treatment(contract=_flipped(lab))
    if trial.kind == "reshape_views":
        return Treatment(function_mode=ReshapeViews)
    if trial.kind == "out_of_place":
        return Treatment(function_mode=OutOfPlace)
    if trial.kind == "bypass":
        return Treatment(function_mode=lambda: Bypass(lab.origin, trial.at))
    if trial.kind in MASKING:
        from encdoctor.lab.repair.hiding import masking_edit  # reads the layout off runs with other padding, made below

        return Treatment(edits=dict.fromkeys(trial.at, masking_edit(lab, trial.kind)))
    if trial.kind in REPAIRS:
        return REPAIRS[trial.kind](lab, trial)
    if trial.kind == "clone_inputs":
        return Treatment(prepare=clone_inputs)
    if trial.kind == "forget":
        return Treatment(prepare=forget)
    makers: dict[str, Callable[[Trial], Edit]] = {
        "float32": lambda t: _in_float32,
        "scale": lambda t: _scaled(1.0 if t.value is None else t.value),
        "finite": lambda t: _finite,
        "without_chance": lambda t: without_chance(),
        "stable_exp": lambda t: _stable_exp(int(t.value or 0)),
        "stable_log": lambda t: _stable_log,
        "take_real": lambda t: take_real(last=bool(t.value)),
        "softmax_dim": lambda t: _softmax_over(int(t.value or 0)),
    }
    if trial.kind not in makers:
        raise NotMeasured(f"no intervention is called {trial.kind!r}")
    edit = makers[trial.kind](trial)
    return Treatment(edits=dict.fromkeys(trial.at, edit))


# ---- edits -----------------------------------------------------------------------------------------------------


def _scaled(factor: float) -> Edit:
    return lambda op: op.output * factor


def _softmax_over(dim: int) -> Edit:
    def edit(op: Operation) -> Tensor:
        above: Tensor = op.args[0]
        written_out = not op.function._schema.name.endswith("softmax")  # exponentials over their sum
        weights = above / above.sum(dim, keepdim=True) if written_out else torch.softmax(above, dim)
        # the recorded argument still names the old axis; sites.py asks the result first
        weights.softmax_dim = dim  # type: ignore[attr-defined]
        return weights

    return edit


def _stable_exp(dim: int) -> Edit:
    def edit(op: Operation) -> Tensor:
        scores: Tensor = op.args[0]
        return torch.exp(scores - scores.amax(dim, keepdim=True))

    return edit


def _stable_log(op: Operation) -> Tensor:
    shares: Tensor = op.args[0]
    return shares.clamp(min=torch.finfo(shares.dtype).tiny).log()


def _finite(op: Operation) -> Tensor:
    low = torch.finfo(op.output.dtype).min
    return torch.nan_to_num(op.output, nan=0.0, neginf=low, posinf=-low)


def _in_float32(op: Operation) -> Any:
    def widen(value: Any) -> Any:
        half = isinstance(value, Tensor) and value.dtype in (torch.float16, torch.bfloat16)
        return value.float() if half else value

    result = op.function(*map(widen, op.args), **{name: widen(value) for name, value in op.kwargs.items()})
    return result.to(op.output.dtype) if isinstance(result, Tensor) else op.output


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


class OutOfPlace(TorchFunctionMode):
    """Makes a new tensor where an operator writes into an old one (`x += y`)."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("__iadd__", "__isub__", "__imul__", "__itruediv__", "__idiv__", "add_", "sub_", "mul_", "div_"):
            plain = getattr(Tensor, name.strip("_").removeprefix("i").replace("truediv", "div"))
            return plain(*args, **(kwargs or {}))
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
        r.tensor.shape in (ids.shape, ids.t().shape)
        and not r.tensor.is_floating_point()
        and (torch.equal(r.tensor, ids) or torch.equal(r.tensor, ids.t()))
        for r in refs
    )
