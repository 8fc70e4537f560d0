"""Finds tensors in plain attributes, and runs the model on the meta device, where they are left behind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from encdoctor.evidence.devices import LooseTensor, LooseTensors
from encdoctor.lab.batches import make_call
from encdoctor.lab.lab import Lab
from encdoctor.lab.source import attribute_line, class_place

DEVICES = re.compile(r"same device|on device|expected device|different device|is on cpu|are on", re.IGNORECASE)


def gather_loose(lab: Lab) -> LooseTensors:
    """Attributes first; the meta device only where the forward reads one of them."""
    situation = replace(lab.full, dtype=lab.dtype)
    read = {_at(ref.tensor) for node in lab.trace(situation).nodes for ref in node.refs if ref.node < 0}
    model = lab.copy_of(lab.dtype)
    at_first = {name for name, _, _, _ in _loose(lab.fresh())}
    found = [
        LooseTensor(
            name,
            tuple(tensor.shape),
            attribute_line(lab.origin, model, owner, name.rpartition(".")[2]) or class_place(lab.origin, model, owner),
            container,
        )
        for name, owner, tensor, container in _loose(model)
        if name in at_first and tensor.dim() > 0 and _at(tensor) in read
    ]
    if not found:
        return LooseTensors(())
    text, places = on_meta(lab)
    return LooseTensors(tuple(found), text, bool(DEVICES.search(text)), places)


def _loose(model: nn.Module) -> Iterator[tuple[str, str, Tensor, str]]:
    """(name, owner, tensor, container) of tensors that are neither parameters nor buffers."""
    kept = nn.Module().__dict__.keys()
    owned = {_at(t) for t in (*model.parameters(), *model.buffers())}
    for owner, module in model.named_modules():
        for attribute, value in vars(module).items():
            if attribute in kept:
                continue
            container = type(value).__name__ if isinstance(value, list | tuple | dict) else ""
            for tensor in _tensors(value):
                if _at(tensor) not in owned:
                    yield f"{owner}.{attribute}".lstrip("."), owner, tensor, container


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        yield from (item for item in value if isinstance(item, Tensor))
    elif isinstance(value, dict):
        yield from (item for item in value.values() if isinstance(item, Tensor))


def _at(tensor: Tensor) -> tuple[int, str]:
    try:
        return tensor.untyped_storage().data_ptr() or id(tensor), str(tensor.dtype)
    except (RuntimeError, NotImplementedError):
        return id(tensor), ""


def on_meta(lab: Lab) -> tuple[str, tuple[Any, ...]]:
    situation = replace(lab.full, dtype=lab.own_dtype)
    call = make_call(lab.contract, situation, "cpu")
    moved = replace(
        call, args=_to_meta(call.args), kwargs=_to_meta(call.kwargs), content=call.content.to("meta")
    )
    with torch.no_grad():
        ran = lab.forward(lab.fresh().to("meta"), situation, moved)
    return ("", ()) if ran.raised is None or ran.raised.kind == "no-output" else (ran.raised.text, ran.raised.places)


def _to_meta(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.to("meta")
    if isinstance(value, dict):
        return {name: _to_meta(item) for name, item in value.items()}
    return tuple(_to_meta(item) for item in value) if isinstance(value, tuple) else value
