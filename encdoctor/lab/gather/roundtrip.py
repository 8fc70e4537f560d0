"""Saves the state, loads it into a new instance built with another seed, and compares outputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from encdoctor.evidence.roundtrip import RoundTrip
from encdoctor.lab.conditions import quiet
from encdoctor.lab.gather.modules import tensors_outside
from encdoctor.lab.gather.parts import twin_of
from encdoctor.lab.lab import Lab
from encdoctor.lab.source import nearest_line


def gather_roundtrip(lab: Lab) -> RoundTrip:
    """The state is that of a model that has run once, as a trained one has."""
    twin = twin_of(lab)
    if twin is None:
        return RoundTrip(False, "there is no second instance: give a class or a factory")
    situation = replace(lab.padded, dtype=lab.own_dtype)
    model = lab.fresh()
    with torch.no_grad():
        before = lab.forward(model, situation).tensor
    state = model.state_dict()
    with quiet():
        twin = twin.to(lab.device).eval()
    wanted = twin.state_dict()
    reshaped = tuple(n for n in wanted if n in state and _shape(state[n]) != _shape(wanted[n]))
    missing, unexpected = tuple(n for n in wanted if n not in state), tuple(n for n in state if n not in wanted)
    if missing or unexpected or reshaped:
        places = tuple(nearest_line(lab.origin, lab.model, n) for n in (*missing, *unexpected, *reshaped)[:3])
        return RoundTrip(True, "", missing, unexpected, reshaped, places=tuple(dict.fromkeys(places)))
    try:
        twin.load_state_dict(state)
    except Exception as error:  # hooks of the model's own may raise anything
        return RoundTrip(True, raised=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    with torch.no_grad():
        ran = lab.forward(twin, situation)
    if ran.output is None or ran.output.shape != before.shape:
        return RoundTrip(True, raised="the new instance does not run as this one does")
    change = _change(before, ran.output)
    if change == 0:
        return RoundTrip(True)
    unsaved = tuple(dict.fromkeys(_differing(model, twin)))
    places = tuple(nearest_line(lab.origin, lab.model, name) for name in unsaved[:3])
    return RoundTrip(True, change=change, unsaved=unsaved, places=tuple(dict.fromkeys(places)))


def _shape(value: Any) -> tuple[int, ...] | None:
    return tuple(value.shape) if isinstance(value, Tensor) else None


def _change(before: Tensor, after: Tensor) -> float:
    """The largest difference, relative to the largest output; what is NaN in both is equal."""
    one, other = before.double().nan_to_num(), after.double().nan_to_num()
    size = one.abs().amax()
    return float((one - other).abs().amax() / size) if float(size) > 0 else 0.0


def _differing(model: nn.Module, twin: nn.Module) -> Iterator[str]:
    """Buffers, and tensors that are plain attributes or lie in unregistered modules, with other values."""
    others = dict(_unsaved(twin))
    for name, tensor in _unsaved(model):
        other = others.get(name)
        if other is None or other.shape != tensor.shape or not torch.equal(other.detach(), tensor.detach()):
            yield name


def _unsaved(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    saved = set(model.state_dict())
    yield from ((name, buffer) for name, buffer in model.named_buffers() if name not in saved)
    yield from tensors_outside(model)
