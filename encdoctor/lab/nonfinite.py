"""Walks a trace to the operation where numbers stop being numbers."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from encdoctor.evidence.numerics import FirstBad
from encdoctor.lab.lab import Lab
from encdoctor.lab.sites import base_name
from encdoctor.lab.source import buffer_line
from encdoctor.lab.trace import CONTENT, MASK, Node, Ref, Trace
from encdoctor.model import Place

MASKING = {"masked_fill", "where", "fill", "full", "full_like", "index_put", "masked_scatter"}


def first_bad(lab: Lab, trace: Trace, model: nn.Module) -> FirstBad | None:
    """The first operation that makes NaN, or +inf, out of finite inputs; −inf alone is how masks are written."""
    for node in trace.nodes:
        output = node.tensor
        if output is None or not output.is_floating_point() or not _bad(output):
            continue
        if any(_bad(r.tensor) for r in node.refs if r.tensor.is_floating_point()):
            continue
        return _describe(lab, trace, node, output, model)
    return None


def _bad(tensor: Tensor) -> bool:
    return bool(torch.isnan(tensor).any()) or bool((tensor == torch.inf).any())


def _describe(lab: Lab, trace: Trace, node: Node, output: Tensor, model: nn.Module) -> FirstBad:
    value = "NaN" if bool(torch.isnan(output).any()) else "inf"
    infinite = [r for r in node.refs if r.tensor.is_floating_point() and bool(torch.isinf(r.tensor).any())]
    masking = any(_is_masking(trace, r) for r in node.refs) or base_name(node.op) in MASKING
    defined = next((_defined_at(lab, model, r) for r in infinite if r.node < 0), None)
    return FirstBad(
        node.key, base_name(node.op), node.place, node.foreign, value, masking and bool(infinite), None, defined
    )


def _is_masking(trace: Trace, ref: Ref) -> bool:
    """Whether a tensor holds −inf that was put there to hide scores, or is derived from the mask alone."""
    if ref.taint & MASK and not ref.taint & CONTENT:
        return True
    return bool((ref.tensor == -math.inf).any()) if ref.tensor.is_floating_point() else False


def _defined_at(lab: Lab, model: nn.Module, ref: Ref) -> Place | None:
    """Where a buffer that became infinite in this dtype was registered."""
    for name, buffer in model.named_buffers():
        if buffer is ref.tensor:
            return buffer_line(lab.origin, model, name)
    return None
