"""Describes regions of the stream as sublayers: their residual, norms, feed-forward and place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from encdoctor.evidence.blocks import Kind, LinearPair, Sublayer
from encdoctor.lab.cuts import typical
from encdoctor.lab.regions import Region, Site, common, divide, layer_of
from encdoctor.lab.sites import base_name
from encdoctor.lab.stream import AFFINE, INPUT, MOVES, STATISTICS, Stream
from encdoctor.lab.trace import CONTENT, Node, Ref
from encdoctor.model import Place


class Reader:
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
        parts = list(divide(self.stream, inner, self.sites))
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
        return any(self.stream.normed(n) for n in self._back(self.stream.sources[linear], region.start))

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
