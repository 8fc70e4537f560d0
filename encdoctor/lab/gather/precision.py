"""Compares half precision with float32 module by module, and fused attention with plain attention."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from encdoctor.evidence.numerics import HalfPrecision
from encdoctor.evidence.precision import Backends, Divergence
from encdoctor.lab.gather.influence import real_outputs, relative_change
from encdoctor.lab.lab import Lab, Ran
from encdoctor.lab.sites import base_name
from encdoctor.lab.situations import Situation
from encdoctor.lab.source import class_place
from encdoctor.model import Place

# An error from which it is worth looking for the module that makes it: twice what sound encoders reach in bfloat16.
LARGE = 0.5
# A module is to blame where its input still agrees and its output does not.
AGREES, DISAGREES = 0.1, 0.25

Seen = dict[str, tuple[list[Tensor], list[Tensor]]]


# Operations whose result jumps where their input moves a little.
JUMPS = {"round", "floor", "ceil", "trunc", "sign", "argmax", "argmin", "topk", "sort", "bucketize"}


def gather_divergence(lab: Lab) -> Divergence:
    """The worst of the half-precision runs that came out finite."""
    runs = [run for run in lab.get(HalfPrecision).runs if run.raised is None and run.bad_share == 0]
    worst = max(runs, key=lambda run: run.error, default=None)
    if worst is None:
        return Divergence("", 0.0)
    if worst.error <= LARGE:
        return Divergence(worst.how, worst.error)
    operations = {base_name(node.op) for node in lab.trace(replace(lab.padded, dtype=lab.dtype)).nodes}
    jumps = next(iter(sorted(operations & JUMPS)), "")
    if jumps:
        return Divergence(worst.how, worst.error, jumps=jumps)
    autocast = worst.dtype if worst.how.startswith("autocast") else ""
    half = replace(lab.padded, dtype="float32" if autocast else worst.dtype, autocast=autocast)
    exact, rough = _outputs(lab, replace(lab.padded, dtype="float32")), _outputs(lab, half)
    for name, (inputs, outputs) in rough.items():
        if name not in exact:
            continue
        before, after = _error(exact[name][0], inputs), _error(exact[name][1], outputs)
        if before < AGREES and after > DISAGREES:
            place = class_place(lab.origin, lab.model, name)
            return Divergence(worst.how, worst.error, name, place, before, after)
    return Divergence(worst.how, worst.error, place=class_place(lab.origin, lab.model))


def _outputs(lab: Lab, situation: Situation) -> Seen:
    """What goes into and comes out of every module, in the order in which they finish."""
    model = lab.copy_of(situation.dtype)
    seen: Seen = {}
    with _watched(model, seen), torch.no_grad():
        lab.forward(model, situation)
    return seen


@contextmanager
def _watched(model: nn.Module, seen: Seen) -> Iterator[None]:
    def note(name: str) -> Any:
        def hook(_: nn.Module, args: Any, output: Any) -> None:
            seen.setdefault(name, (_tensors(args), _tensors(output)))

        return hook

    handles = [m.register_forward_hook(note(name)) for name, m in model.named_modules() if name]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value.detach().double()] if value.is_floating_point() else []
    return [t for item in value for t in _tensors(item)] if isinstance(value, list | tuple) else []


def _error(exact: list[Tensor], rough: list[Tensor]) -> float:
    pairs = [(a, b) for a, b in zip(exact, rough, strict=False) if a.shape == b.shape and a.numel()]
    return max((float((a - b).abs().amax() / a.abs().amax().clamp(min=1e-12)) for a, b in pairs), default=0.0)


def _alone(lab: Lab, situation: Situation) -> Ran:
    with torch.no_grad():
        return lab.forward(lab.fresh().to(getattr(torch, situation.dtype)), situation)


def gather_backends(lab: Lab) -> Backends:
    """The padded batch in the model's own dtype."""
    situation = replace(lab.padded, dtype=lab.own_dtype)
    # each on a copy of its own: what a call leaves behind (statistics, caches) is no difference of kernels
    fused, plain = _alone(lab, situation), _alone(lab, replace(situation, fast_path=False))
    place: Place = class_place(lab.origin, lab.model)
    if fused.output is None or plain.output is None:
        raised = fused.raised or plain.raised
        return Backends(None, raised.summary if raised else "forward returned no tensor", place)
    if fused.output.shape != plain.output.shape:
        return Backends(None, "the fast path gives an output of another shape", place)
    real = real_outputs(lab, fused.output, situation)
    return Backends(relative_change(plain.output, fused.output, real), "", place)
