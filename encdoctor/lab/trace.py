"""Records what a forward computes: every ATen operation with its producers, module path and source line.

A `Tracer` is a dispatch mode under global module hooks. Each operation gets a *key* made of its module path, source
line, name and how often that combination occurred before; the key is the same in every run that takes the same path,
so an operation found in one run can be edited in another (`edits`). The fused attention paths are switched off by the
caller (see `Lab.trace`), so that softmax is seen. Limits: what runs inside TorchScript, a higher-order operator or a
custom kernel appears as one operation or not at all.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from encdoctor.model import Place
from encdoctor.target import Origin

CONTENT, MASK, PARAMETER = 1, 2, 4
COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isfinite", "isinf", "logical_not", "bitwise_not"}
# torch modules that compute attention inside: what goes wrong there is not in the user's lines
COMPOSITE = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder, nn.Transformer, nn.RNNBase)
_OURS = "encdoctor."
_TARGETS_OF_OURS = ("encdoctor.reference", "encdoctor.cases")



@dataclass(frozen=True)
class Operation:
    """One operation while it runs, for an edit: `keep` is (B, S), True at real positions of this run."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any
    keep: Tensor


# what an operation's output is replaced by
Edit = Callable[[Operation], Any]


@dataclass(frozen=True)
class Ref:
    """A tensor argument: the node that made it (-1 for a leaf) and the tensor itself."""

    node: int
    tensor: Tensor
    taint: int


@dataclass
class Node:
    """One recorded operation. `args` holds Refs where tensors stood; `foreign` means inside a torch module."""

    index: int
    op: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any
    module: str
    place: Place
    foreign: bool
    taint: int
    key: str

    @property
    def refs(self) -> list[Ref]:
        """The tensor arguments in order, lists of tensors flattened."""
        return list(_refs((self.args, tuple(self.kwargs.values()))))

    @property
    def tensor(self) -> Tensor | None:
        """The first output tensor."""
        if isinstance(self.output, Tensor):
            return self.output
        if isinstance(self.output, tuple | list):
            return next((t for t in self.output if isinstance(t, Tensor)), None)
        return None


@dataclass
class Trace:
    """All operations of one forward in order, and the modules that were called but are not registered.

    `handed` tells for each module where it was first called, and whether it was given something made from the mask.
    """

    nodes: list[Node] = field(default_factory=list)
    unregistered: list[tuple[nn.Module, str, Place]] = field(default_factory=list)
    handed: dict[str, tuple[Place, bool]] = field(default_factory=dict)
    failed: tuple[str, tuple[tuple[int, ...], ...]] | None = None
    output: Any = None
    keep: Tensor | None = None

    def users(self) -> dict[int, list[Node]]:
        """For each node the nodes that read its output."""
        users: dict[int, list[Node]] = {}
        for node in self.nodes:
            for ref in node.refs:
                users.setdefault(ref.node, []).append(node)
        return users


class ModulePath:
    """The stack of modules that are running, by their names in `named_modules()`.

    A module that is called but not registered gets the name of its caller, a question mark and its class.
    """

    def __init__(self, root: nn.Module, origin: Origin, on_enter: Callable[[str], None] | None = None) -> None:
        self.names = {id(module): name for name, module in root.named_modules()}
        self.stack: list[tuple[str, nn.Module]] = []
        self.unregistered: dict[int, tuple[nn.Module, str, Place]] = {}
        self.on_call: Callable[[str, tuple[Any, ...]], None] | None = None
        self._origin = origin
        self._on_enter = on_enter
        self._handles: list[Any] = []

    def __enter__(self) -> ModulePath:
        self._handles = [
            register_module_forward_pre_hook(self._push),
            register_module_forward_hook(self._pop, always_call=True),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self.stack.clear()

    @property
    def name(self) -> str:
        return self.stack[-1][0] if self.stack else ""

    @property
    def foreign(self) -> bool:
        return any(isinstance(module, COMPOSITE) for _, module in self.stack)

    def _push(self, module: nn.Module, _: Any) -> None:
        name = self.names.get(id(module))
        if name is None:
            name = f"{self.name}.?{type(module).__name__}".lstrip(".")
            if id(module) not in self.unregistered and "?" not in self.name:
                place = find_place(self._origin, self.name, sys._getframe(1))
                self.unregistered[id(module)] = (module, self.name, place)
        if self.on_call is not None:
            self.on_call(name, _arguments(sys._getframe(1)))
        self.stack.append((name, module))
        if self._on_enter is not None:
            self._on_enter(name)

    def _pop(self, module: nn.Module, *_: Any) -> None:
        # an exception may have skipped inner pops
        while self.stack and self.stack.pop()[1] is not module:
            pass


class Tracer(TorchDispatchMode):
    """Records operations into `trace` and applies `edits` (by key) to their outputs."""

    def __init__(
        self,
        path: ModulePath,
        origin: Origin,
        taints: Mapping[int, int],
        edits: Mapping[str, Edit] | None = None,
        record: bool = True,
        *,
        keep: Tensor,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.trace = Trace(keep=keep)
        self._path, self._origin, self._keep = path, origin, keep
        self._taints, self._edits, self._record = dict(taints), edits or {}, record
        self._made: dict[int, tuple[int, Tensor]] = {}
        self._aliases: dict[int, list[int]] = {}
        self._seen: Counter[tuple[str, int, str]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        op = func._schema.name.split("::")[-1]
        place = find_place(self._origin, self._path.name, sys._getframe(1))
        key = self._key(place, op)
        refs = self._record and tuple(self._ref(arg) for arg in args)
        refs_by_name = self._record and {name: self._ref(arg) for name, arg in kwargs.items()}
        try:
            output = func(*args, **kwargs)
        except Exception:
            shapes = tuple(tuple(t.shape) for t in args if isinstance(t, Tensor))
            self.trace.failed = self.trace.failed or (op, shapes)
            raise
        if key in self._edits:
            output = self._edits[key](Operation(func, args, kwargs, output, self._keep))
        if self._record:
            assert isinstance(refs, tuple) and isinstance(refs_by_name, dict)
            self._add(func, op, refs, refs_by_name, output, place, key)
        return output

    def note_call(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Keeps whether a module is handed something made from the mask; for `ModulePath.on_call`."""
        if name in self.trace.handed:
            return
        masked = any(self._ref(t).taint == MASK for t in _tensors(arguments))
        self.trace.handed[name] = (find_place(self._origin, self._path.name, sys._getframe(3)), masked)

    def _key(self, place: Place, op: str) -> str:
        # in-place and functional forms share a name, so that an edit survives either
        at = (self._path.name, place.line, op)
        self._seen[at] += 1
        return f"{self._path.name}|{place.line}|{op}|{self._seen[at]}"

    def _ref(self, arg: Any) -> Any:
        if isinstance(arg, Tensor):
            node, _ = self._made.get(id(arg), (-1, arg))
            taint = self.trace.nodes[node].taint if node >= 0 else self._leaf_taint(arg)
            return Ref(node, arg, taint)
        if isinstance(arg, list | tuple):
            return tuple(self._ref(item) for item in arg)
        return arg

    def _leaf_taint(self, leaf: Tensor) -> int:
        if id(leaf) in self._taints:
            return self._taints[id(leaf)]
        return PARAMETER if isinstance(leaf, nn.Parameter) else 0

    def _add(
        self,
        func: Any,
        op: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        output: Any,
        place: Place,
        key: str,
    ) -> None:
        taint = 0
        for ref in _refs((args, tuple(kwargs.values()))):
            taint |= ref.taint
        first = output if isinstance(output, Tensor) else None
        if op in COMPARISONS or (first is not None and first.dtype is torch.bool and taint & CONTENT):
            # what is read off the contents as a yes or no (ids != pad) is a mask from here on
            taint = MASK if taint & (CONTENT | MASK) else taint
        index = len(self.trace.nodes)
        node = Node(
            index, op, args, kwargs, output, self._path.name, place, self._path.foreign, taint, key
        )
        self.trace.nodes.append(node)
        for tensor in _tensors(output):
            self._remember(tensor, index)
        if func._schema.is_mutable:
            self._spread(output, index)

    def _remember(self, tensor: Tensor, index: int) -> None:
        self._made[id(tensor)] = (index, tensor)
        self._aliases.setdefault(_storage(tensor), []).append(id(tensor))

    def _spread(self, output: Any, index: int) -> None:
        """A write through a view also changes every other view of the same memory."""
        for tensor in _tensors(output):
            for alias in self._aliases.get(_storage(tensor), []):
                known = self._made[alias]
                self._made[alias] = (index, known[1])


def find_place(origin: Origin, module: str, frame: FrameType | None) -> Place:
    """The innermost line of the target's own source on the stack, else the innermost line outside torch."""
    outside: FrameType | None = None
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not _internal(name):
            if origin.owns(name, frame.f_code.co_filename):
                return Place(module, _class_of(frame), frame.f_code.co_filename, frame.f_lineno, True)
            outside = outside or frame
        elif name == "encdoctor.lab.lab":
            break  # our own call of the model: nothing of the user's lies above
        frame = frame.f_back
    if outside is None:
        return Place(module)
    return Place(module, _class_of(outside), outside.f_code.co_filename, outside.f_lineno, False)


def _internal(name: str) -> bool:
    if name.startswith(_OURS):
        return not name.startswith(_TARGETS_OF_OURS)
    return name.split(".")[0] in ("torch", "contextlib", "functools", "einops", "opt_einsum", "importlib")


def _arguments(frame: FrameType | None) -> tuple[Any, ...]:
    """The arguments of the module call that runs the hook, keywords too, which hooks are not given."""
    while frame is not None and "_call_impl" not in frame.f_code.co_qualname:
        frame = frame.f_back
    if frame is None:
        return ()
    return (*frame.f_locals.get("args", ()), *frame.f_locals.get("kwargs", {}).values())


def _class_of(frame: FrameType) -> str:
    owner = frame.f_locals.get("self")
    return type(owner).__name__ if owner is not None else ""


def _storage(tensor: Tensor) -> int:
    try:
        return tensor.untyped_storage().data_ptr() or id(tensor)
    except (RuntimeError, NotImplementedError):  # no storage: sparse, meta, wrappers
        return id(tensor)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _refs(value: Any) -> Iterator[Ref]:
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _refs(item)
