"""Runs the model on the meta device and finds the tensor that stays on the CPU."""

from __future__ import annotations

from dataclasses import replace

from encdoctor.evidence.devices import LooseTensors, MetaRun
from encdoctor.lab.gather.devices import DEVICES, on_meta
from encdoctor.lab.lab import Lab
from encdoctor.lab.sites import base_name
from encdoctor.lab.trace import Node, Trace
from encdoctor.model import Place

FACTORIES = {
    "arange", "zeros", "ones", "full", "empty", "linspace", "eye", "rand", "randn", "lift_fresh", "logspace",
    "scalar_tensor", "tril_indices", "triu_indices", "randint", "randperm",
}  # fmt: skip


def gather_meta_run(lab: Lab) -> MetaRun:
    """In the model's own dtype; where tensors meet that live apart, the usual run tells which were made in forward."""
    text, places = on_meta(lab)
    if not text or not DEVICES.search(text):
        return MetaRun(text, False)
    loose = bool(lab.get(LooseTensors).tensors)
    trace = lab.trace(replace(lab.full, dtype=lab.own_dtype))
    return MetaRun(text, True, places, tuple(_made(trace, places)), loose)


def _made(trace: Trace, places: tuple[Place, ...]) -> list[Place]:
    """The lines where the operands of the line that raised are made out of nothing."""
    if not places:
        return []
    line = (places[0].file, places[0].line)
    at = [node for node in trace.nodes if (node.place.file, node.place.line) == line]
    made = [node.place for start in at for node in _behind(trace, start) if base_name(node.op) in FACTORIES]
    return list(dict.fromkeys(place for place in made if place.line))


def _behind(trace: Trace, start: Node) -> list[Node]:
    """The node and all that it depends on and that depends on no input, a few steps back."""
    found, todo = [], [(start, 0)]
    while todo:
        node, depth = todo.pop()
        found.append(node)
        if depth < 12:
            todo += [(trace.nodes[r.node], depth + 1) for r in node.refs if r.node >= 0 and not r.taint]
    return found
