"""Finds where one sample's content first reaches another sample."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from torch import nn

from encdoctor.evidence.attention import AttentionSites, Site
from encdoctor.evidence.influence import SampleMixing
from encdoctor.evidence.mixing import SampleCrossing
from encdoctor.lab.batches import make_call
from encdoctor.lab.compare import axis_of, moved, paired
from encdoctor.lab.lab import Lab, NotMeasured
from encdoctor.lab.source import attribute_line
from encdoctor.lab.trace import CONTENT, Node, Trace
from encdoctor.model import Place

# More samples than q, k and v are, so that no other axis is taken for the batch.
SAMPLES = 5
DECLARED = re.compile(
    r"[^.\n]*\b(?:inter-?sample|in-?batch|contrastive|"
    r"(?:attends?|attention) (?:over|across|between) (?:the )?(?:samples|rows|batch)|"
    r"across (?:the )?(?:samples|batch))\b[^.\n]*",
    re.IGNORECASE,
)


def gather_crossing(lab: Lab) -> SampleCrossing:
    """Records two batches that differ in the first sample; only where others move."""
    if lab.get(SampleMixing).across == 0:
        return SampleCrossing()
    found = _first_crossing(lab)
    sites = _sites(lab)
    swapped = [site for site in sites if site.over_batch]
    return replace(
        found,
        swapped=tuple(_attention_of(lab, swapped)),
        swapped_at=tuple(dict.fromkeys(site.place for site in swapped)),
        made=tuple(dict.fromkeys(_constructors(lab, swapped))),
        all_swapped=bool(swapped) and len(swapped) == len(sites),
        declared=_declared(lab),
    )


def _first_crossing(lab: Lab) -> SampleCrossing:
    length = lab.full.length
    situation = replace(lab.full, dtype=lab.dtype, lengths=(length,) * SAMPLES)
    first = make_call(lab.contract, situation, lab.device)
    second = make_call(lab.contract, situation, lab.device)
    donor = make_call(lab.contract, replace(situation, seed=7), lab.device)
    axis = lab.contract.shape.index("B")
    second.content.narrow(axis, 0, 1).copy_(donor.content.narrow(axis, 0, 1))
    before, after = lab.record(situation, first), lab.record(situation, second)
    for one, other in paired(before, after):
        left, right = one.tensor, other.tensor
        assert left is not None and right is not None
        at = axis_of(left, SAMPLES)
        if at is not None and one.taint & CONTENT and not set(moved(left, right, at).tolist()) <= {0}:
            return _origin(before, one)
    return SampleCrossing()


def _origin(trace: Trace, node: Node) -> SampleCrossing:
    """From the first operation that shows it back to the one that took samples together."""
    places, cause = [node.place], node
    for ref in node.refs:
        if ref.node < 0 or not ref.taint & CONTENT or SAMPLES in ref.tensor.shape:
            continue
        maker = trace.nodes[ref.node]
        while maker.refs and SAMPLES not in maker.refs[0].tensor.shape and maker.refs[0].node >= 0:
            maker = trace.nodes[maker.refs[0].node]
        places.insert(0, maker.place)
        cause = maker
    return SampleCrossing(cause.op, tuple(dict.fromkeys(places)))


def _sites(lab: Lab) -> tuple[Site, ...]:
    try:
        return lab.get(AttentionSites).sites
    except NotMeasured:
        return ()


def _attention_of(lab: Lab, sites: list[Site]) -> Iterator[str]:
    for site in sites:
        if isinstance(_submodule(lab, site.module), nn.MultiheadAttention):
            yield site.module


def _constructors(lab: Lab, sites: list[Site]) -> Iterator[Place]:
    """The lines of the target's own that construct torch's attention modules."""
    for name in _attention_of(lab, sites):
        owner, _, attribute = name.rpartition(".")
        while True:
            place = attribute_line(lab.origin, lab.model, owner, attribute)
            if place is not None and place.own:
                yield replace(place, module=name)
            if not owner or (place is not None and place.own):
                break
            owner, _, attribute = owner.rpartition(".")


def _submodule(lab: Lab, name: str) -> nn.Module | None:
    try:
        return lab.model.get_submodule(name)
    except AttributeError:
        return None


def _declared(lab: Lab) -> str:
    for cls in dict.fromkeys(type(module) for module in lab.model.modules()):
        said = DECLARED.search(cls.__doc__ or "")
        if said and not cls.__module__.startswith("torch."):
            return f'docstring of {cls.__name__}: "{" ".join(said.group().split())}"'
    return ""
