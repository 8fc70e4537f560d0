"""Reads the build of an encoder off the stream: sublayers, residuals, norms and dropout on the stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from encdoctor.evidence.blocks import Blocks, DeadSite, Kind, LinearPair, OnStream, Sublayer
from encdoctor.lab.batches import make_call
from encdoctor.lab.cuts import typical
from encdoctor.lab.influence import relative_change
from encdoctor.lab.lab import Lab, Treatment
from encdoctor.lab.outputs import pick
from encdoctor.lab.readings import return_line
from encdoctor.lab.sites import base_name, score_paths
from encdoctor.lab.stream import AFFINE, BATCH_NORMS, INPUT, MOVES, STATISTICS, Step, Stream
from encdoctor.lab.trace import CONTENT, Node, Ref, Trace
from encdoctor.model import Place


@dataclass(frozen=True)
class Region:
    """Consecutive steps that make one sublayer, and the sites in it."""

    steps: tuple[Step, ...]
    sites: tuple[int, ...]

    @property
    def start(self) -> int:
        return self.steps[0].start

    @property
    def end(self) -> int:
        return self.steps[-1].end

    @property
    def bypass(self) -> bool:
        return all(step.bypass or (self.sites and step.shortcut) for step in self.steps)

    @property
    def inside(self) -> list[int]:
        return [n for step in self.steps for n in step.inside]


@dataclass(frozen=True)
class Site:
    """Nodes of one attention site."""

    softmax: int
    scores: int
    mix: int


def gather_blocks(lab: Lab) -> Blocks:
    """The topology from the padded trace; dropout from one in train mode."""
    trace = lab.trace(replace(lab.padded, dtype=lab.dtype))
    stream = stream_of(lab, trace)
    if stream is None:
        return Blocks(False, "the output was not found among the recorded operations")
    sites = _sites(trace)
    living = [site for site in sites if site.mix in stream.live]
    steps = stream.steps(stream.trunk())
    regions = list(_regions(stream, steps, living))
    reader = _Reader(stream, living, regions)
    body = [region for region in regions if region.bypass or reader.expects_bypass(region)]
    after = [step for step in steps if body and step.start >= body[-1].end]
    # a norm behind a head's first map normalises the head's hidden units, not the stream
    on_stream = _until_work(after)
    batch_norms = tuple(_batch_norms(stream, body))
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
    )


def _sites(trace: Trace) -> list[Site]:
    return [Site(p.softmax.index, p.contraction.index, p.reader.index) for p in score_paths(trace)]


def stream_of(lab: Lab, trace: Trace) -> Stream | None:
    """The stream of a trace to the contract's output, None where that is not one of its tensors."""
    try:
        output = pick(trace.output, lab.contract.output)
    except (KeyError, IndexError, AttributeError, TypeError):
        return None
    stream = Stream(trace, output)
    return stream if stream.end is not None else None


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


# ---- regions ---------------------------------------------------------------------------------------------------


def _regions(stream: Stream, steps: list[Step], sites: list[Site]) -> Iterator[Region]:
    """Steps with a bypass stand alone; those without are joined until a norm or a bypass separates them."""
    open_steps: list[Step] = []
    for step in steps:
        if step.works and (step.bypass or (_sites_in(step, sites) and step.shortcut)):
            yield from _close(open_steps, sites)
            open_steps = []
            yield Region((step,), _sites_in(step, sites))
        elif step.works:
            open_steps.append(step)
        elif any(stream.normed(n) for n in step.inside):
            yield from _close(open_steps, sites)
            open_steps = []
    yield from _close(open_steps, sites)


def _close(steps: list[Step], sites: list[Site]) -> Iterator[Region]:
    if steps:
        yield Region(tuple(steps), tuple(s for step in steps for s in _sites_in(step, sites)))


def _sites_in(step: Step, sites: list[Site]) -> tuple[int, ...]:
    inside = set(step.inside)
    return tuple(i for i, site in enumerate(sites) if site.softmax in inside)


# ---- sublayers -------------------------------------------------------------------------------------------------


class _Reader:
    """Describes regions as sublayers."""

    def __init__(self, stream: Stream, sites: list[Site], regions: list[Region]) -> None:
        self.stream, self.sites, self.regions = stream, sites, regions
        self.nodes = stream.nodes
        with_site = [i for i, region in enumerate(regions) if region.sites]
        self.first, self.last = (with_site[0], with_site[-1]) if with_site else (0, -1)
        self.layers = {i: layer_of(i, sites, self.nodes) for i in range(len(sites))}

    def sublayer(self, region: Region) -> Sublayer:
        inside = region.inside
        linears = [n for n in inside if self.stream.is_linear(n)]
        norms = [n for n in inside if self.stream.normed(n)]
        kind = Kind.ATTENTION if region.sites else Kind.FEED_FORWARD if linears else Kind.OTHER
        skip, branch = self._operands(region)
        norm = self._stream_norm(region.start)
        return Sublayer(
            kind=kind,
            layer=self._layer(region),
            places=self._places(region),
            foreign=self.nodes[region.end].foreign,
            bypass=region.bypass,
            expected=self.expects_bypass(region),
            norm_before=bool(linears) and all(self._reads_norm(region, n) for n in self._entries(region, linears)),
            norm_in_branch=any(n > max(linears, default=0) and n != region.end for n in norms),
            norm_on_stream=norm is not None,
            linears=len(linears),
            activations=sum(self._is_activation(n) for n in inside),
            sites=len(region.sites),
            stream_norm="" if norm is None else self.nodes[norm].module,
            sum_in=self.nodes[region.end].module,
            skips_over=region.bypass and self._skips_over(region, branch),
            coefficients=(_factor(self.stream, skip), _factor(self.stream, branch)),
            size_in=self._size(region.start),
            size_out=self._size(region.end),
            size_branch=typical(branch.tensor) if branch is not None else 0.0,
            pairs=tuple(self._pairs(region, linears)),
        )

    def _size(self, n: int) -> float:
        tensor = self.nodes[n].tensor if n != INPUT else self.stream.content
        return typical(tensor) if tensor is not None and tensor.is_floating_point() else 0.0

    # ---- where ---------------------------------------------------------------------------------------------------

    def _layer(self, region: Region) -> str:
        if region.sites:
            return self.layers[region.sites[0]]
        return common([self.nodes[n].module for n in region.inside])

    def _places(self, region: Region) -> tuple[Place, ...]:
        """The sum; without one, the line that takes the result up, and the line that makes it."""
        made = self.nodes[region.end]
        if region.bypass:
            return (made.place,)
        layer = self._layer(region)
        taken = self._taken_up(region.end)
        inside = taken is not None and layer and (taken.module == layer or taken.module.startswith(f"{layer}."))
        if taken is None or not taken.place.own:
            return (made.place,)
        both = (taken.place, made.place) if inside and made.module != layer else (made.place, taken.place)
        return tuple(dict.fromkeys(replace(place, module=layer or place.module) for place in both))

    def _taken_up(self, n: int) -> Node | None:
        """The first operation behind a node that is no view of it."""
        for _ in range(20):
            readers = [r for r in self.stream.readers.get(n, []) if r in self.stream.live]
            if not readers:
                return None
            if base_name(self.nodes[readers[0]].op) not in MOVES:
                return self.nodes[readers[0]]
            n = readers[0]
        return None

    # ---- residual ------------------------------------------------------------------------------------------------

    def expects_bypass(self, region: Region) -> bool:
        """Whether a sublayer like this has a way around it in a sound encoder."""
        start, end = region.start, region.end
        if start == INPUT or not self._keeps_shape(start, end):
            return False
        if region.sites:
            return all(self._is_self_attention(self.sites[i], region) for i in region.sites)
        at = self.regions.index(region)
        linears = sum(len(step.linears) for step in region.steps)
        if linears < 2 or at < self.first:
            return False
        if at < self.last:
            return True
        layer = self.layers[len(self.sites) - 1] if self.sites else ""
        modules = [self.nodes[n].module for step in region.steps for n in step.linears]
        return bool(layer) and all(m.startswith(f"{layer}.") or m == layer for m in modules)

    def _keeps_shape(self, start: int, end: int) -> bool:
        before, after = self.nodes[start].tensor, self.nodes[end].tensor
        return before is not None and after is not None and before.numel() == after.numel()

    def _is_self_attention(self, site: Site, region: Region) -> bool:
        scores = self.nodes[site.softmax].tensor
        operands = self.nodes[site.scores].refs[-2:]
        square = scores is not None and scores.shape[-1] == scores.shape[-2]
        return square and all(ref.taint & CONTENT for ref in operands)

    def _operands(self, region: Region) -> tuple[Ref | None, Ref | None]:
        """(skip, branch) of the sum that ends a region: the branch is computed later."""
        node = self.nodes[region.end]
        refs = [r for r in node.refs if r.taint & CONTENT]
        if not region.bypass or base_name(node.op) not in ("add", "sub") or len(refs) != 2:
            return None, None
        first, second = sorted(refs, key=lambda r: r.node)
        return first, second

    def _skips_over(self, region: Region, branch: Ref | None) -> bool:
        """Whether the branch holds one sublayer with its own residual and, behind it, one without."""
        if branch is None or branch.node < 0:
            return False
        inner = self.stream.steps(self.stream.trunk(region.start, branch.node))
        parts = list(_regions(self.stream, inner, self.sites))
        if len(parts) != 2 or not parts[0].bypass or not parts[0].sites:
            return False
        second = parts[1]
        linears = sum(len(step.linears) for step in second.steps)
        return not second.bypass and linears >= 2 and self._keeps_shape(second.start, second.end)

    # ---- norms ---------------------------------------------------------------------------------------------------

    def _entries(self, region: Region, linears: list[int]) -> list[int]:
        """The linear maps that no other one of the region feeds."""
        fed: set[int] = set()
        for n in region.inside:
            if any(s in fed or s in linears for s in self.stream.sources[n]):
                fed.add(n)
        return [n for n in linears if n not in fed]

    def _reads_norm(self, region: Region, linear: int) -> bool:
        for n in self._back(self.stream.sources[linear], region.start):
            if self.stream.normed(n):
                return True
        return False

    def _back(self, of: tuple[int, ...], stop: int) -> Iterator[int]:
        """Back along single operands, as far as `stop`, which is left out."""
        n = of[0] if of else INPUT
        while n > stop:
            yield n
            sources = sorted(set(self.stream.sources[n]))
            if not sources:
                return
            n = self.stream.norms.get(n, sources[-1])

    def _stream_norm(self, n: int) -> int | None:
        """The norm whose output a stream point is, gain and shift included."""
        for _ in range(8):
            if n == INPUT or self.stream.normed(n):
                break
            sources = set(self.stream.sources[n])
            if base_name(self.nodes[n].op) not in MOVES | {"mul", "add"} or len(sources) != 1:
                break
            n = sources.pop()
        return n if n != INPUT and self.stream.normed(n) else None

    # ---- feed-forward --------------------------------------------------------------------------------------------

    def _is_activation(self, n: int) -> bool:
        """Squares that go into a mean, and the product that ends a norm, are parts of the norm."""
        readers = self.stream.readers.get(n, [])
        measured = bool(readers) and all(self.nodes[r].op in STATISTICS for r in readers)
        return self.stream.is_activation(n) and not measured and not self.stream.normed(n)

    def _pairs(self, region: Region, linears: list[int]) -> Iterator[LinearPair]:
        """Linear maps that follow another without anything between, attention's own projections left out."""
        if not (region.bypass or self.expects_bypass(region)):
            return
        for second in linears:
            first = self._only_linear_before(second)
            if first is None or first not in linears or self._feeds_site(second) or self._reads_mix(first):
                continue
            inner, outer = self.nodes[first].tensor, self.nodes[first].refs
            source = max((r.tensor.numel() for r in outer if r.taint & CONTENT), default=0)
            if inner is None or not source:
                continue
            node = self.nodes[first]
            yield LinearPair(self._layer(region), node.place, inner.numel() / source, node.key)

    def _only_linear_before(self, linear: int) -> int | None:
        """The last of the maps that alone, through sums and scalings, make this map's input."""
        found, todo, seen = set(), [self.stream.sources[linear][0]], set()
        while todo:
            n = todo.pop()
            if n in seen:
                continue
            seen.add(n)
            if n == INPUT or len(seen) > 60:
                return None
            if self.stream.is_linear(n):
                found.add(n)
            elif base_name(self.nodes[n].op) not in AFFINE or self.stream.normed(n) or self.stream.is_activation(n):
                return None
            else:
                todo += self.stream.sources[n]
        return max(found, default=None)

    def _feeds_site(self, linear: int) -> bool:
        """Whether a contraction of two computed tensors reads it before any other map does."""
        todo = [linear]
        for _ in range(200):
            if not todo:
                return False
            for reader in self.stream.readers.get(todo.pop(), []):
                if self.stream.mixes(reader):
                    return True
                if not self.stream.is_linear(reader) and not self.stream.normed(reader):
                    todo.append(reader)
        return False

    def _reads_mix(self, linear: int) -> bool:
        n = self.stream.sources[linear][0]
        while n != INPUT and base_name(self.nodes[n].op) in MOVES and len(set(self.stream.sources[n])) == 1:
            n = self.stream.sources[n][0]
        return n != INPUT and self.stream.mixes(n)


def layer_of(index: int, sites: list[Site], nodes: list[Node]) -> str:
    """The outermost module that holds this site and no other one's module, "" where it is the root."""
    own = nodes[sites[index].softmax].module
    others = {nodes[s.softmax].module for s in sites} - {own}
    parts = own.split(".")
    for length in range(1, len(parts) + 1):
        prefix = ".".join(parts[:length])
        if not any(o == prefix or o.startswith(f"{prefix}.") for o in others):
            return prefix if others or length > 1 or len(parts) == 1 else own.rpartition(".")[0]
    return own


def common(modules: list[str]) -> str:
    """The longest module path that all share."""
    split = [m.split(".") for m in modules if m]
    if not split:
        return ""
    shared = []
    for names in zip(*split, strict=False):
        if len(set(names)) > 1:
            break
        shared.append(names[0])
    return ".".join(shared)


def _factor(stream: Stream, ref: Ref | None) -> float:
    """The product of the plain numbers that an operand of a sum was multiplied with."""
    factor = 1.0
    n = ref.node if ref is not None else INPUT
    for _ in range(12):
        if n == INPUT:
            break
        node, op, sources = stream.nodes[n], base_name(stream.nodes[n].op), set(stream.sources[n])
        if len(sources) != 1 or (op not in MOVES and op not in ("mul", "div")):
            break
        if op in ("mul", "div") and not node.module.rpartition(".")[2].startswith("?"):
            other = node.args[1] if len(node.args) > 1 else 1.0
            if isinstance(other, Ref):
                break
            factor *= float(other) if op == "mul" else 1.0 / float(other)
        n = sources.pop()
    return factor


# ---- what acts on the stream -------------------------------------------------------------------------------------


def _dead(stream: Stream, sites: list[Site]) -> Iterator[DeadSite]:
    for i, site in enumerate(sites):
        if site.mix in stream.live:
            continue
        node, layer = stream.nodes[site.softmax], layer_of(i, sites, stream.nodes)
        after = next(
            (n.place for n in stream.nodes[site.mix :] if n.index in stream.live and (n.module or "").startswith(layer)),
            None,
        )
        yield DeadSite(node.module, layer, node.place, after)


def _dropouts(lab: Lab) -> tuple[OnStream, ...]:
    """Dropout on the stream between the first and the last sublayer, in train mode, on copies of their own."""
    trace = lab.under(Treatment()).trace(replace(lab.padded, dtype=lab.dtype, training=True))
    stream = stream_of(lab, trace)
    if stream is None:
        return ()
    sites = _sites(trace)
    steps = stream.steps(stream.trunk())
    regions = [region for region in _regions(stream, steps, sites) if region.bypass]
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
