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
    r"same dtype|expected scalar type|dtypes? (?:to )?match|match query\.?dtype|and (?:bias|weight) type|self\.dtype to be equal"
    r"|to have the same type|Found dtype|expected .* but got: (?:float|c10::Half|c10::BFloat16)",
    re.IGNORECASE,
)
HALVES = (torch.float16, torch.bfloat16)


def widened_at(lab: Lab, trace: Trace, model: nn.Module) -> tuple[Place, ...]:
    """Where the float32 tensor was made, and where it first met a half one; () where the trace does not show it."""
    for node in trace.nodes:
        wide = _wide_operand(node)
        if wide is not None:
            return tuple(dict.fromkeys((_made_at(lab, trace, model, wide) or node.place, node.place)))
    last = next((node for node in reversed(trace.nodes) if _is_wide(node)), None)
    return (last.place,) if last is not None and last.place.line else ()


def _wide_operand(node: Node) -> Ref | None:
    """The float32 operand of an operation that promotes half to float32."""
    floating = [r for r in node.refs if r.tensor.is_floating_point() and r.tensor.dim() > 0]
    if not _is_wide(node) or not any(r.tensor.dtype in HALVES for r in floating):
        return None
    return next((r for r in floating if r.tensor.dtype is torch.float32), None)


def _is_wide(node: Node) -> bool:
    return node.tensor is not None and node.tensor.dtype is torch.float32 and node.tensor.dim() > 0


def _made_at(lab: Lab, trace: Trace, model: nn.Module, ref: Ref) -> Place | None:
    """Follows a float32 tensor back to the operation that made it out of something that is not float32."""
    while ref.node >= 0:
        node = trace.nodes[ref.node]
        wide = [r for r in node.refs if r.tensor.dtype is torch.float32 and r.tensor.dim() > 0]
        if not wide:
            return node.place if node.place.line else None
        ref = wide[0]
    for name, buffer in model.named_buffers():
        if buffer is ref.tensor:
            return buffer_line(lab.origin, model, name)
    return None
