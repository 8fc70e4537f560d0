"""Runs hand-written norms on rows that have no variance, and compares eps with the variance of torch's own."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from encdoctor.evidence.norms import HandNorm, NormEps, Norms
from encdoctor.lab.conditions import quiet
from encdoctor.lab.lab import Lab, NotMeasured
from encdoctor.lab.sites import base_name
from encdoctor.lab.trace import Node, Trace
from encdoctor.model import Place

ROOTS = {"rsqrt", "sqrt", "std", "linalg_vector_norm", "norm", "pow", "reciprocal"}
TORCH_NORMS = {"native_layer_norm": 4, "_fused_rms_norm": 3}


def gather_norms(lab: Lab) -> Norms:
    """From the recorded padded batch in the model's own dtype."""
    situation = replace(lab.padded, dtype=lab.own_dtype)
    trace = lab.trace(situation)
    if not trace.nodes:
        raise NotMeasured("no operation was recorded")
    return Norms(tuple(_written(lab, trace)), tuple(_eps_of_torch(trace)))


def _eps_of_torch(trace: Trace) -> Iterator[NormEps]:
    for node in trace.nodes:
        at = TORCH_NORMS.get(node.op)
        if at is None or len(node.args) <= at or not isinstance(node.args[at], float):
            continue
        x, shape = node.args[0].tensor.detach().double(), node.args[1]
        rows = x.flatten(-len(shape))
        variance = rows.var(-1, correction=0) if node.op == "native_layer_norm" else rows.square().mean(-1)
        # rows without any variance are padding, or a constant start token: no eps would help them
        variance = variance[torch.isfinite(variance) & (variance > 0)]
        if variance.numel():
            yield NormEps(node.module, node.place, node.foreign, node.args[at], float(variance.median()))


# ---- written out -----------------------------------------------------------------------------------------------


def _written(lab: Lab, trace: Trace) -> Iterator[HandNorm]:
    """Each class of leaf modules that takes a root or a norm of one floating tensor and gives one of its shape."""
    model = lab.copy_of(lab.own_dtype)
    modules = dict(model.named_modules())
    roots = _roots(trace)
    tried: set[type] = set()
    for name, places in roots.items():
        module = modules.get(name)
        if module is None or type(module) in tried or next(module.children(), None) is not None:
            continue
        tried.add(type(module))
        width = _width(trace, name)
        bad, row = _probe(lab, module, width) if width else ((), "")
        if bad:
            count = sum(type(modules[other]) is type(module) for other in roots if other in modules)
            yield HandNorm(name, type(module).__name__, places, bad, row, count)


def _roots(trace: Trace) -> dict[str, Place]:
    found: dict[str, Place] = {}
    for node in trace.nodes:
        if base_name(node.op) in ROOTS and not node.foreign and node.module and node.place.line and _is_root(node):
            found[node.module] = node.place
    return found


def _is_root(node: Node) -> bool:
    """A power counts where its exponent is no square."""
    return base_name(node.op) != "pow" or (len(node.args) > 1 and node.args[1] in (-0.5, 0.5))


def _width(trace: Trace, module: str) -> int:
    """The width of the tensor that the module reads first."""
    first = next((node for node in trace.nodes if node.module == module and node.refs), None)
    largest = max((ref.tensor for ref in first.refs), key=torch.Tensor.numel) if first is not None else None
    return int(largest.shape[-1]) if largest is not None and largest.dim() >= 2 else 0


def _probe(lab: Lab, module: nn.Module, width: int) -> tuple[tuple[str, ...], str]:
    """(dtypes in which a row without variance is not finite, which row)."""
    bad, row = [], ""
    for dtype in dict.fromkeys((lab.own_dtype, "float16")):
        for kind, value in (("zeros", 0.0), ("equal values", 1.0)):
            if not _is_finite(module, width, value, getattr(torch, dtype)):
                bad.append(dtype)
                row = row or kind
                break
    return tuple(bad), row


def _is_finite(module: nn.Module, width: int, value: float, dtype: torch.dtype) -> bool:
    """True too where the module cannot be called with one tensor, or cannot run in that dtype."""
    usual = torch.randn(2, 3, width, generator=torch.Generator().manual_seed(0)).to(dtype)
    with torch.no_grad(), quiet():
        try:
            probe = copy.deepcopy(module).to(dtype).eval()
            reference = probe(usual)
            found = probe(torch.full_like(usual, value))
        except Exception:  # no norm that this probe can call: nothing is said against it
            return True
    if not isinstance(found, Tensor) or found.shape != usual.shape or not bool(torch.isfinite(reference).all()):
        return True
    return bool(torch.isfinite(found).all())
