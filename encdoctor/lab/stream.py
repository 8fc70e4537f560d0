"""The content's way through a trace as a graph: its trunk, and which regions of it can be bypassed.

Only edges that carry the input's content count: masks, positions and parameters are not on the way. A *trunk node* is
an operation that every path from the input to the output goes through; between two of them lies a *region*. A region
has a bypass where a path of elementwise operations and views alone leads through it: that is what a residual is,
however it is written (a sum, a gated sum, a stochastic branch, a reversible pair).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from itertools import pairwise
from typing import Any

from torch import Tensor

from encdoctor.lab.sites import VIEWS, base_name
from encdoctor.lab.trace import CONTENT, PARAMETER, Node, Ref, Trace

LINEARS = {"mm", "addmm", "bmm", "baddbmm", "convolution", "addbmm", "addmv", "mv", "_convolution", "linear"}
NORMS = {
    "native_layer_norm", "native_group_norm", "_fused_rms_norm", "rms_norm", "native_batch_norm",
    "_native_batch_norm_legit", "_native_batch_norm_legit_no_training", "cudnn_batch_norm", "batch_norm",
    "_batch_norm_with_update", "_batch_norm_no_update",
}  # fmt: skip
BATCH_NORMS = {name for name in NORMS if "batch_norm" in name}
MOVES = VIEWS | {
    "cat", "stack", "split", "split_with_sizes", "chunk", "unbind", "index", "index_select", "gather", "roll", "flip",
    "constant_pad_nd", "repeat", "narrow", "select_scatter", "slice_scatter", "pixel_shuffle", "pixel_unshuffle",
    "as_strided", "unfold", "_reshape_copy", "view_as", "expand_as", "new_zeros",
}  # fmt: skip
SUMS = {"add", "sub", "lerp", "addcmul", "where", "masked_fill", "index_add", "index_put", "copy", "rsub", "fill"}
AFFINE = MOVES | SUMS | {"mul", "div", "neg", "native_dropout"}
ACTIVATIONS = {
    "relu", "gelu", "silu", "tanh", "sigmoid", "elu", "leaky_relu", "softplus", "mish", "hardswish", "hardtanh",
    "celu", "selu", "glu", "erf", "relu6", "prelu", "_prelu_kernel", "hardsigmoid", "threshold", "clamp_min", "clamp",
    "sin", "abs", "exp", "pow", "maximum", "minimum", "rrelu_with_noise", "log_sigmoid_forward", "softsign",
}  # fmt: skip
ELEMENTWISE = AFFINE | ACTIVATIONS | NORMS | {"rsqrt", "sqrt", "square", "reciprocal", "nan_to_num", "log", "log1p"}
# ops that take a tensor for its shape alone
SHAPE_ONLY = {"zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "new_zeros", "new_ones", "new_full",
              "new_empty", "randn_like", "bernoulli"}  # fmt: skip
STATISTICS = {"mean", "var", "std", "var_mean", "sum", "linalg_vector_norm", "norm", "_fused_rms_norm"}


@dataclass(frozen=True)
class Step:
    """From one trunk node to the next: what lies between, the end included.

    `bypass` tells that elementwise operations alone lead through, `shortcut` that at most one linear map does.
    """

    start: int
    end: int
    inside: tuple[int, ...]
    linears: tuple[int, ...]
    mixes: tuple[int, ...]
    bypass: bool
    shortcut: bool

    @property
    def works(self) -> bool:
        """Whether anything but elementwise operations happens here."""
        return bool(self.linears or self.mixes)


# The input itself, before any operation.
INPUT = -1


class Stream:
    """The graph of one trace; `end` is the node of the output, None where it has none."""

    def __init__(self, trace: Trace, output: Tensor) -> None:
        self.nodes = trace.nodes
        self.sources = [tuple(self._content_sources(node)) for node in trace.nodes]
        self.content = next((r.tensor for n in trace.nodes for r in n.refs if r.node < 0 and r.taint & CONTENT), None)
        self.readers: dict[int, list[int]] = {}
        for node in trace.nodes:
            for source in set(self.sources[node.index]):
                self.readers.setdefault(source, []).append(node.index)
        self.end = next((n.index for n in reversed(trace.nodes) if any(t is output for t in tensors(n.output))), None)
        self.live = self.ancestors([self.end]) if self.end is not None else set()
        # what is computed on the way to a hand-written norm: its statistics, the centring
        self.statistics: set[int] = set()
        self.norms = {n.index: base for n in trace.nodes if (base := self._normalises(n)) is not None}

    def _content_sources(self, node: Node) -> Iterator[int]:
        if base_name(node.op) in SHAPE_ONLY:
            return
        for ref in node.refs:
            if ref.taint & CONTENT:
                yield ref.node  # INPUT where it is the content as it was passed

    # ---- walking ---------------------------------------------------------------------------------------------

    def ancestors(self, of: Iterable[int]) -> set[int]:
        """The nodes that these depend on for content, themselves included."""
        found, todo = set(of), list(of)
        while todo:
            node = todo.pop()
            for source in self.sources[node] if node != INPUT else ():
                if source not in found:
                    found.add(source)
                    todo.append(source)
        return found

    def trunk(self, start: int = INPUT, end: int | None = None) -> list[int]:
        """Nodes on every path from `start` to `end` (the output), in order, both included."""
        end = self.end if end is None else end
        if end is None:
            return []
        live = self.live if end == self.end else self.ancestors([end])
        order = [n for n in sorted(live) if n >= start]
        into, out = dict.fromkeys(order, 0), dict.fromkeys(order, 0)
        into[start] = out[end] = 1
        for n in order:
            if n != start:
                into[n] = sum(into.get(s, 0) for s in self.sources[n])
        for n in reversed(order):
            for source in self.sources[n] if n != start else ():
                if source in out:
                    out[source] += out[n]
        total = into[end]
        return [n for n in order if total and into[n] * out[n] == total]

    def steps(self, trunk: list[int]) -> list[Step]:
        """The regions between neighbouring trunk nodes."""
        if len(trunk) < 2:
            return []
        live = sorted(self.ancestors([trunk[-1]]))
        return [self._step(a, b, [n for n in live if a < n <= b]) for a, b in pairwise(trunk)]

    def _step(self, start: int, end: int, members: list[int]) -> Step:
        reached, cost = {start}, {start: 0}
        inside = [n for n in members if self._leads_here(n, start, reached)]
        for n in inside:
            paid = min((cost[s] for s in self.sources[n] if s in cost), default=None)
            if paid is None:
                continue
            op = base_name(self.nodes[n].op)
            if op in ELEMENTWISE and not self.is_linear(n):
                cost[n] = paid if paid == 0 or op in AFFINE else 9
            elif self.is_linear(n) and paid == 0:
                cost[n] = 1
        return Step(
            start,
            end,
            tuple(inside),
            tuple(n for n in inside if self.is_linear(n)),
            tuple(n for n in inside if self.mixes(n)),
            bypass=cost.get(end) == 0,
            shortcut=cost.get(end, 9) <= 1,
        )

    def _leads_here(self, n: int, start: int, reached: set[int]) -> bool:
        if any(s in reached for s in self.sources[n]):
            reached.add(n)
            return True
        return False

    # ---- what a node is --------------------------------------------------------------------------------------

    def is_linear(self, index: int) -> bool:
        """A learned linear map or convolution of the content."""
        node = self.nodes[index]
        if base_name(node.op) not in LINEARS:
            return False
        weights = [r for r in node.refs if not r.taint & CONTENT]
        return len(self.sources[index]) == 1 and any(r.taint & PARAMETER for r in weights)

    def mixes(self, index: int) -> bool:
        """A contraction of two computed tensors."""
        return base_name(self.nodes[index].op) in LINEARS and len(self.sources[index]) > 1

    def is_activation(self, index: int) -> bool:
        """An elementwise function that is not affine, or a product of two computed tensors (a gate)."""
        op = base_name(self.nodes[index].op)
        return op in ACTIVATIONS or (op == "mul" and len(self.sources[index]) > 1)

    def weight(self, index: int) -> Ref | None:
        """The weight operand of a linear map."""
        refs = [r for r in self.nodes[index].refs if not r.taint & CONTENT and r.tensor.dim() > 1]
        return refs[-1] if refs else None

    def normed(self, index: int) -> bool:
        return index in self.norms

    def _normalises(self, node: Node) -> int | None:
        """The node whose output is normalised by this one: a norm of torch, or x·s with s a statistic of x."""
        sources = self.sources[node.index]
        if node.op in NORMS:
            return sources[0] if sources else None
        if base_name(node.op) not in ("mul", "div") or len(sources) != 2 or node.tensor is None:
            return None
        whole, factor = self._whole_and_factor(node)
        if factor is None or whole is None:
            return None
        measured = self._statistic(factor, 8)
        if measured is None:
            return None
        root = self._before_centring(measured)
        if self._before_centring(whole) != root:
            return None
        parts = {root}
        for n in range(root + 1, node.index):
            if self.sources[n] and parts.issuperset(self.sources[n]) and not self.is_linear(n):
                parts.add(n)
        self.statistics |= parts - {root}
        return root

    def _whole_and_factor(self, node: Node) -> tuple[int | None, int | None]:
        shape, whole, factor = node.tensor.shape if node.tensor is not None else (), None, None
        for ref in node.refs:
            if ref.tensor.shape == shape and ref.tensor.dim() and ref.tensor.shape[-1] > 1 and whole is None \
                    and not self._is_spread(ref.node):
                whole = ref.node
            elif ref.node >= 0:
                factor = ref.node
        return whole, factor

    def _is_spread(self, index: int) -> bool:
        """An expanded statistic has the shape of what it scales."""
        return index >= 0 and self.nodes[index].op == "expand"

    def _statistic(self, index: int, steps: int) -> int | None:
        """What a statistic along the last axis was taken of, through roots, powers and small constants."""
        if index == INPUT:
            return None
        node = self.nodes[index]
        if node.op in STATISTICS and self.sources[index]:
            return self.sources[index][0]
        if steps == 0 or base_name(node.op) not in ELEMENTWISE or len(set(self.sources[index])) != 1:
            return None
        return self._statistic(self.sources[index][0], steps - 1)

    def _before_centring(self, index: int) -> int:
        """Back through squares, centring and casts."""
        for _ in range(6):
            if index == INPUT:
                break
            node, sources = self.nodes[index], set(self.sources[index])
            op = base_name(node.op)
            if op in ("pow", "square", "abs") or (op in VIEWS and sources) or (op == "mul" and len(sources) == 1):
                index = min(sources)
            elif op == "sub" and len(sources) == 2:
                index = node.refs[0].node if node.refs[0].node in sources else min(sources)
            else:
                break
        return index


def tensors(value: Any, depth: int = 0) -> Iterator[Tensor]:
    """All tensors in what a forward returned."""
    if isinstance(value, Tensor):
        yield value
    elif depth > 4:
        return
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors(item, depth + 1)
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from tensors(item, depth + 1)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from tensors(getattr(value, field.name, None), depth + 1)
    elif hasattr(value, "__dict__"):
        for item in vars(value).values():
            yield from tensors(item, depth + 1)
