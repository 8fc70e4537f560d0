"""Follows queries, keys and values of each attention back to their maps and to the stream."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from encdoctor.evidence.blocks import Blocks
from encdoctor.evidence.layers import Layers
from encdoctor.evidence.roles import Role, Roles, SiteRoles
from encdoctor.lab.lab import Lab, NotMeasured
from encdoctor.lab.regions import stream_of
from encdoctor.lab.sites import ScorePath, base_name, score_paths
from encdoctor.lab.stream import INPUT, MOVES, Stream
from encdoctor.lab.trace import CONTENT, Ref
from encdoctor.model import Place

PIECES = {"select", "slice", "split", "split_with_sizes", "chunk", "unbind"}


def gather_roles(lab: Lab) -> Roles:
    """From the padded trace."""
    trace = lab.trace(replace(lab.padded, dtype=lab.dtype))
    stream = stream_of(lab, trace)
    if stream is None:
        raise NotMeasured("the output was not found among the recorded operations")
    names = {_where(p): name for name, p in lab.copy_of(lab.dtype).named_parameters()}
    follow = _Follow(stream, names)
    spares = _spares(lab)
    return Roles(tuple(site for path in score_paths(trace) if (site := _site(lab, follow, path, spares)) is not None))


def _where(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _spares(lab: Lab) -> list[str]:
    """Modules that no output depends on."""
    return [u.module for u in lab.get(Layers).unused]


def _site(lab: Lab, follow: _Follow, path: ScorePath, spares: list[str]) -> SiteRoles | None:
    if path.reader.index not in follow.stream.live or len(path.contraction.refs) < 2:
        return None
    query, key = path.contraction.refs[-2:]
    values = [r for r in path.reader.refs if r.taint & CONTENT and not follow.leads_to(r, path.softmax.index)]
    if len(values) != 1:
        return None
    module = path.softmax.module
    layer = next((s.layer for s in lab.get(Blocks).sublayers if s.layer and module.startswith(s.layer)), "")
    roles = [follow.role(ref) for ref in (query, key, values[0])]
    if any(role is None for role in roles):
        return None
    q, k, v = (role for role in roles if role is not None)
    spare = next((s for s in spares if s.startswith(f"{module}.") or s.rpartition(".")[0] == module), "")
    weights = path.softmax.tensor
    return SiteRoles(
        module,
        layer,
        path.contraction.place,
        path.reader.place,
        path.softmax.foreign,
        q,
        k,
        v,
        spare or follow.part_left([query, key] if v.raw else [query, key, values[0]]),
        _inert_heads(weights, values[0].tensor) if weights is not None else (),
        weights.shape[1] if weights is not None and weights.dim() == 4 else 1,
        follow.output_is_dead(path.reader.index),
    )


def _inert_heads(weights: Tensor, values: Tensor) -> tuple[int, ...]:
    """Heads that repeat another one's weights and values, or give zeros."""
    if weights.dim() != 4 or weights.shape[1] < 2 or values.numel() % (weights.shape[0] * weights.shape[1]):
        return ()
    by_head = values.reshape(*weights.shape[:2], -1)
    inert = []
    for h in range(weights.shape[1]):
        twin = any(
            torch.equal(weights[:, h], weights[:, g]) and torch.equal(by_head[:, h], by_head[:, g]) for g in range(h)
        )
        if twin or not bool(by_head[:, h].any()):
            inert.append(h)
    return tuple(inert)


class _Follow:
    """Walks back from an operand."""

    def __init__(self, stream: Stream, names: dict[int, str]) -> None:
        self.stream, self.names = stream, names
        self.trunk = set(stream.trunk())

    def leads_to(self, ref: Ref, index: int) -> bool:
        """Whether an operand depends on that node within the site: the weights, not the values."""
        todo, seen = [ref.node], set()
        while todo:
            n = todo.pop()
            if n == index:
                return True
            if n > index and n not in seen:
                seen.add(n)
                todo += self.stream.sources[n]
        return False

    def role(self, ref: Ref) -> Role | None:
        """The maps behind an operand, the part of them, and what they read; None where that is not one point."""
        maps: list[int] = []
        pieces, seen = set[int](), set[int]()
        todo, raw = [ref], False
        while todo:
            at = todo.pop()
            n = at.node
            if n != INPUT and base_name(self.stream.nodes[n].op) in PIECES:
                pieces.add(int(at.tensor.storage_offset()))
            if n in seen:
                continue
            seen.add(n)
            if n != INPUT and self.stream.is_linear(n):
                maps.append(n)
            elif self._is_stream(n):
                raw = True
            elif self.stream.mixes(n):
                return None
            else:
                todo += [r for r in self.stream.nodes[n].refs if r.node in self.stream.sources[n]]
        if not maps:
            return Role((), (), raw, False, INPUT, 1.0, self._place(ref.node))
        reads = [self._read(n) for n in maps]
        if len({source for source, _ in reads}) > 1:
            return None
        norms = [norm for _, norm in reads if norm is not None]
        return Role(
            tuple(sorted(self._name(n) for n in maps)),
            tuple(sorted(pieces)),
            raw,
            len(norms) == len(reads),
            reads[0][0],
            _spread(ref.tensor),
            self._place(max(maps)),
            self._place(norms[0]) if norms else None,
        )

    def _is_stream(self, n: int) -> bool:
        """The input, or a sum or norm that everything goes through."""
        return n == INPUT or (n in self.trunk and (self.stream.normed(n) or len(set(self.stream.sources[n])) > 1))

    def part_left(self, operands: list[Ref]) -> str:
        """The fused map of which these operands, if they share one, read a part only; "" where they do not."""
        maps = {n for ref in operands for n in self._maps_of(ref)}
        if len(maps) != 1 or (n := maps.pop()) == INPUT:
            return ""
        whole = self.stream.nodes[n].tensor
        parts = {tuple(self.pieces(r)): r.tensor.numel() for r in operands}
        if whole is None or len(parts) == 3 or whole.numel() != 3 * max(parts.values()):
            return ""
        return f"a part of {self._name(n).partition('@')[0]}"

    def pieces(self, ref: Ref) -> list[int]:
        role = self.role(ref)
        return [] if role is None else list(role.piece)

    def _maps_of(self, ref: Ref) -> set[int]:
        n = ref.node
        while n != INPUT and not self.stream.is_linear(n):
            sources = set(self.stream.sources[n])
            if len(sources) != 1:
                return {INPUT}
            n = sources.pop()
        return {n}

    def output_is_dead(self, n: int) -> bool:
        """Whether the map behind the weighted values has weights of zero."""
        for _ in range(12):
            readers = self.stream.readers.get(n, [])
            if len(readers) != 1:
                return False
            n = readers[0]
            if self.stream.is_linear(n):
                weight = self.stream.weight(n)
                return weight is not None and not bool(weight.tensor.any())
        return False

    def _read(self, linear: int) -> tuple[int, int | None]:
        """(the point of the stream that a map reads, the norm on the way)."""
        n, norm = self.stream.sources[linear][0], None
        while n != INPUT and n not in self.trunk:
            norm = n if norm is None and self.stream.normed(n) else norm
            sources = self.stream.sources[n]
            if not sources:
                break
            n = self.stream.norms.get(n, max(sources))
        while n != INPUT and base_name(self.stream.nodes[n].op) in MOVES and len(set(self.stream.sources[n])) == 1:
            n = self.stream.sources[n][0]  # views of one point are one point
        return n, norm

    def _name(self, linear: int) -> str:
        weight = self.stream.weight(linear)
        if weight is None:
            return f"#{linear}"
        offset = weight.tensor.storage_offset()
        return f"{self.names.get(_where(weight.tensor), f'#{linear}')}@{offset}"

    def _place(self, n: int) -> Place:
        return self.stream.nodes[n].place if n != INPUT else Place()


def _spread(tensor: Tensor) -> float:
    """Largest standard deviation of a feature over all tokens and samples, relative to the root mean square."""
    if tensor.dim() < 3:
        return 1.0
    rows = tensor.double()
    size = rows.square().mean().sqrt()
    if float(size) == 0:
        return 0.0
    batch = rows.reshape(-1, *rows.shape[-2:])
    along = [batch.std(dim=d, correction=0).amax() for d in (1, 2)]
    return float(torch.stack(along).amin() / size)

