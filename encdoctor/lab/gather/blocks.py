"""Reads the build of an encoder off the stream: sublayers, and what acts on the stream as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from encdoctor.evidence.blocks import Blocks, DeadSite, OnStream
from encdoctor.lab.batches import make_call
from encdoctor.lab.gather.influence import relative_change
from encdoctor.lab.lab import Lab, Treatment
from encdoctor.lab.readings import return_line
from encdoctor.lab.regions import Region, Site, divide, find_sites, layer_of, stream_of
from encdoctor.lab.sites import base_name
from encdoctor.lab.stream import BATCH_NORMS, INPUT, MOVES, Step, Stream
from encdoctor.lab.sublayers import Reader
from encdoctor.lab.trace import Node
from encdoctor.model import Place


def gather_blocks(lab: Lab) -> Blocks:
    """The topology from the padded trace; dropout from one in train mode."""
    trace = lab.trace(replace(lab.padded, dtype=lab.dtype))
    stream = stream_of(lab, trace)
    if stream is None:
        return Blocks(False, "the output was not found among the recorded operations")
    sites = find_sites(trace)
    living = [site for site in sites if site.mix in stream.live]
    steps = stream.steps(stream.trunk())
    regions = list(divide(stream, steps, living))
    reader = Reader(stream, living, regions)
    body = [region for region in regions if region.bypass or reader.expects_bypass(region)]
    after = [step for step in steps if body and step.start >= body[-1].end]
    # a norm behind a head's first map normalises the head's hidden units, not the stream
    on_stream = _until_work(after)
    batch_norms = tuple(_batch_norms(stream, body))
    # norms of a convolutional stem normalise over time on purpose
    first = next((region.start for region in body if region.sites), len(stream.nodes))
    return Blocks(
        understood=bool(sites),
        why="" if sites else "no attention was recognised",
        sublayers=tuple(reader.sublayer(region) for region in body),
        final_norm=any(stream.normed(n) for step in on_stream for n in step.inside),
        final=(*_returns(lab), stream.nodes[body[-1].end].place) if body else (),
        dead=tuple(_dead(stream, sites)),
        dropouts=_dropouts(lab) if len(body) > 1 else (),
        batch_norms=batch_norms,
        across_samples=_across_samples(lab) if batch_norms else 0.0,
        sites=len(sites),
        norm_keys=tuple(stream.nodes[n].key for n in sorted({*stream.norms, *stream.statistics}) if n >= first),
    )


def _returns(lab: Lab) -> Iterator[Place]:
    """The line where the target's forward returns."""
    place = return_line(lab.origin, lab.model)
    if place is not None:
        yield place


def _until_work(steps: list[Step]) -> list[Step]:
    kept = []
    for step in steps:
        if step.works:
            break
        kept.append(step)
    return kept


# ---- what acts on the stream -------------------------------------------------------------------------------------


def _dead(stream: Stream, sites: list[Site]) -> Iterator[DeadSite]:
    for i, site in enumerate(sites):
        if site.mix in stream.live:
            continue
        node, layer = stream.nodes[site.softmax], layer_of(i, sites, stream.nodes)
        after = next(
            (n.place for n in stream.nodes[site.mix :] if n.index in stream.live and n.module.startswith(layer)),
            None,
        )
        yield DeadSite(node.module, layer, node.place, after)


def _dropouts(lab: Lab) -> tuple[OnStream, ...]:
    """Dropout on the stream between the first and the last sublayer, in train mode, on copies of their own."""
    trace = lab.under(Treatment()).trace(replace(lab.padded, dtype=lab.dtype, training=True))
    stream = stream_of(lab, trace)
    if stream is None:
        return ()
    sites = find_sites(trace)
    steps = stream.steps(stream.trunk())
    regions = [region for region in divide(stream, steps, sites) if region.bypass]
    first = next((i for i, region in enumerate(regions) if region.sites), len(regions))
    regions = regions[first:]
    if len(regions) < 2:
        return ()
    ends, found, on_sum = {region.end for region in regions}, [], False
    for step in steps:
        node = stream.nodes[step.end]
        if step.works:
            on_sum = step.end in ends
        elif on_sum and step.start < regions[-1].start and _drops(stream, node):
            found.append(OnStream("dropout", node.module, node.place, node.foreign))
    return tuple(found)


def _across_samples(lab: Lab) -> float:
    """How far other samples move in train mode when the first one's content changes; dropout falls alike in both."""
    fresh = lab.under(Treatment())
    plain = replace(lab.full, dtype=lab.dtype, training=True)
    call, donor = (make_call(lab.contract, replace(plain, seed=seed), lab.device) for seed in (plain.seed, 7))
    call.content.narrow(lab.contract.shape.index("B"), 0, 1).copy_(
        donor.content.narrow(lab.contract.shape.index("B"), 0, 1)
    )
    before = fresh.run(plain).output
    with torch.no_grad():
        after = fresh.forward(fresh.copy_of(plain.dtype), plain, call).output
    if before is None or after is None or before.shape != after.shape:
        return 0.0
    others = torch.zeros(before.shape[:2], dtype=torch.bool, device=before.device)
    others[1:] = True
    return relative_change(before, after, others)


def _drops(stream: Stream, node: Node) -> bool:
    """Noise of the tensor's own shape: a whole branch that is dropped has one number a sample."""
    if node.op == "native_dropout":
        return True
    if base_name(node.op) != "mul" or node.tensor is None:
        return False
    return any(
        ref.node >= 0 and ref.tensor.shape == node.tensor.shape and _is_noise(stream, ref.node) for ref in node.refs
    )


def _is_noise(stream: Stream, n: int) -> bool:
    node = stream.nodes[n]
    for _ in range(3):
        if base_name(node.op) == "bernoulli":
            return True
        previous = [r.node for r in node.refs if r.node >= 0]
        if not previous:
            return False
        node = stream.nodes[previous[0]]
    return base_name(node.op) == "bernoulli"


def _batch_norms(stream: Stream, regions: list[Region]) -> Iterator[OnStream]:
    """Batch norm on the stream after the first site, or as the norm in front of a sublayer."""
    if not regions:
        return
    trunk_steps = stream.steps(stream.trunk(regions[0].start, regions[-1].end))
    on_trunk = {step.end for step in trunk_steps}
    for node in stream.nodes:
        if node.op not in BATCH_NORMS or node.index not in stream.live or node.index < regions[0].start:
            continue
        source = stream.sources[node.index][0]
        while source not in on_trunk and source != INPUT and base_name(stream.nodes[source].op) in MOVES:
            source = stream.sources[source][0]
        if source in on_trunk or source == regions[0].start or node.index in on_trunk:
            yield OnStream("batch norm", node.module, node.place, node.foreign)
