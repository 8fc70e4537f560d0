"""Looks at the output: does it depend on the input, are its rows probabilities, what does the author call it."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace

import torch
from torch import Tensor

from encdoctor.evidence.influence import SampleMixing
from encdoctor.evidence.outputs import OutputFacts
from encdoctor.lab.lab import Lab, NotMeasured
from encdoctor.lab.outputs import pick
from encdoctor.lab.trace import CONTENT, Node, Trace
from encdoctor.model import Place

LOGITS = re.compile(r"logits?\b|cross.?entropy|unnormali[sz]ed scores", re.I)
PROBABILITIES = re.compile(r"probabilit|softmax(ed)? (scores|output)|\bnll.?loss", re.I)
# Rows whose sum differs from 1 by less than this are probabilities: float32 sums a hundred classes to 1e-6.
ONE = 1e-4


def gather_outputs(lab: Lab) -> OutputFacts:
    """From the padded batch's recorded run."""
    trace = lab.trace(replace(lab.padded, dtype=lab.dtype))
    base = lab.run(replace(lab.full, dtype=lab.dtype)).tensor
    if not bool(torch.isfinite(base).all()):
        raise NotMeasured("the outputs are not finite", "a forward with finite outputs")
    depends = lab.get(SampleMixing).within
    output = pick(trace.output, lab.contract.output) if trace.output is not None else None
    made = _maker(trace, output)
    exponents = None if output is None or not lab.contract.pooled else output.double()
    sums = exponents is not None and _is_distribution(exponents)
    log = exponents is not None and not sums and _is_distribution(exponents.exp())
    meant, quote = _documented(lab)
    soft = _softmax_before(trace, made)
    soft_at = soft.place if soft else made.place if made and sums else Place()  # written out: its last line
    return OutputFacts(
        depends, _lost(lab, trace, made) if depends == 0 else (), sums, log, soft_at, meant, quote
    )


def _maker(trace: Trace, output: Tensor | None) -> Node | None:
    return next((n for n in reversed(trace.nodes) if output is not None and n.tensor is output), None)


def _is_distribution(rows: Tensor) -> bool:
    if rows.dim() < 2 or rows.shape[-1] < 2 or not bool((rows >= 0).all()):
        return False
    return bool(((rows.sum(-1) - 1).abs() < ONE).all())


def _softmax_before(trace: Trace, made: Node | None) -> Node | None:
    """The softmax that the output comes from directly, through views and a logarithm at most."""
    for _ in range(6):
        if made is None or made.op in ("_softmax", "_log_softmax"):
            return made
        refs = [r for r in made.refs if r.node >= 0]
        made = trace.nodes[refs[0].node] if len(refs) == 1 else None
    return None


def _lost(lab: Lab, trace: Trace, made: Node | None) -> tuple[Place, ...]:
    """Where the way to the output loses the input: operations that read what differs and give what does not.

    Where nothing on the way differs at all, the lines that run after the last computation on the content.
    """
    if made is None:
        return ()
    chain = _chain(trace, made)
    other = {n.key: n for n in lab.trace(replace(lab.padded, dtype=lab.dtype, seed=1)).nodes}
    same = {n.index for n in trace.nodes if n.key in other and _equal(n.tensor, other[n.key].tensor)}
    dead = [n for n in chain if n.index in same and n.taint & CONTENT and any(r.node not in same for r in n.refs)]
    last = max((n.index for n in trace.nodes if n.taint & CONTENT), default=-1)
    late = [n for n in chain if n.index > last]
    places = [n.place for n in (dead or late)]
    return tuple(dict.fromkeys(place for place in places if place.line))


def _chain(trace: Trace, made: Node) -> list[Node]:
    """Everything that the output was made from, in order."""
    chain, todo = set(), [made.index]
    while todo:
        index = todo.pop()
        if index in chain or index < 0:
            continue
        chain.add(index)
        todo += [r.node for r in trace.nodes[index].refs]
    return [trace.nodes[i] for i in sorted(chain)]


def _equal(one: Tensor | None, other: Tensor | None) -> bool:
    return one is not None and other is not None and one.shape == other.shape and bool((one == other).all())


def _documented(lab: Lab) -> tuple[str, str]:
    """What the docstrings of the class and of forward call the output."""
    for text in (inspect.getdoc(lab.model.forward), inspect.getdoc(type(lab.model))):
        for sentence in re.split(r"(?<=[.;])\s|\n", text or ""):
            if PROBABILITIES.search(sentence):
                return "probabilities", sentence.strip()
            if LOGITS.search(sentence):
                return "logits", sentence.strip()
    return "", ""
