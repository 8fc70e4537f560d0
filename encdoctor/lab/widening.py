"""Finds where a float32 tensor gets into a computation in half precision."""

from __future__ import annotations

import re

import torch
from torch import nn

from encdoctor.lab.lab import Lab
from encdoctor.lab.source import buffer_line
from encdoctor.lab.trace import Node, Ref, Trace
from encdoctor.model import Place

# torch's texts for two dtypes where one is allowed.
DTYPES_CLASH = re.compile(
    r"same dtype|expected scalar type|dtypes? (?:to )?match|match query\.?dtype|and (?:bias|weight) type"
    r"|self\.dtype to be equal|to have the same type|Found dtype"
    r"|expected .* but got: (?:float|c10::Half|c10::BFloat16)",
    re.IGNORECASE,
)


def widened_at(lab: Lab, trace: Trace, model: nn.Module) -> tuple[tuple[Place, ...], bool]:
    """Where the float32 tensor that was refused comes from, and where it met a half one; () where nothing shows it.

    The second tells that it is held by the model without being registered, so that a change of dtype passes it by.
    """
    shapes = trace.failed[1] if trace.failed is not None else ()
    refused = next((n for n in reversed(trace.nodes) if _is_wide(n) and _shape(n) in shapes), None)
    if refused is None:
        return (), False
    places, start = _history(refused, trace)
    held = _held_in(lab, model, start) if start is not None else None
    known = start is None or held is not None or any(start.tensor is p for p in model.parameters())
    return tuple(dict.fromkeys(place for place in (held, *places) if place is not None and place.line)), not known


def _history(node: Node, trace: Trace) -> tuple[list[Place], Ref | None]:
    """The lines from where the float32 tensor is made to where it was refused, and the leaf it started from."""
    met: list[Place] = []
    while True:
        floating = [r for r in node.refs if r.tensor.is_floating_point() and r.tensor.dim() > 0]
        wide = [r for r in floating if r.tensor.dtype is torch.float32]
        if len(wide) < len(floating) or not wide:
            met.insert(0, node.place)
        if not wide:
            return met, None
        if wide[0].node < 0:
            return [node.place, *met], wide[0]
        node = trace.nodes[wide[0].node]


def _shape(node: Node) -> tuple[int, ...]:
    return tuple(node.tensor.shape) if node.tensor is not None else ()


def _is_wide(node: Node) -> bool:
    return node.tensor is not None and node.tensor.dtype is torch.float32 and node.tensor.dim() > 0


def _held_in(lab: Lab, model: nn.Module, ref: Ref) -> Place | None:
    """Where a buffer that stayed float32 is registered."""
    for name, buffer in model.named_buffers():
        if buffer is ref.tensor:
            return buffer_line(lab.origin, model, name)
    return None
