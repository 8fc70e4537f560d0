"""Sees function calls from above autograd: the way of the gradient, and where it is cut.

Dispatch modes run below autograd and cannot tell who requires a gradient; a function mode can.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from encdoctor.evidence.gradients import Cut
from encdoctor.lab.trace import ModulePath, find_place
from encdoctor.model import Place
from encdoctor.target import Origin

# Their derivative is zero wherever it exists: the gradient arrives as zeros.
FLAT = {"round", "floor", "ceil", "trunc", "sign", "round_", "floor_", "ceil_", "trunc_", "sign_"}
# They choose: what comes out is whole numbers, behind which there is no derivative.
CHOICES = {"argmax", "argmin", "argsort", "multinomial", "long", "int", "short", "byte"}


@dataclass
class Step:
    """One function call with a floating result: its producers, and the typical sizes once backward has run.

    `sound` tells that the result has neither NaN nor +inf; −inf is how masks are written.
    """

    index: int
    name: str
    place: Place
    sources: tuple[int, ...]
    activation: float
    gradient: float | None = None
    finite: bool = True
    sound: bool = True


@dataclass
class Flow:
    """Steps in order; `start` marks steps that read the content directly."""

    steps: list[Step] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    starts: set[int] = field(default_factory=set)
    end: int = -1


class FlowRecorder(TorchFunctionMode):
    """Records a forward into `flow`; the steps' gradients arrive during backward."""

    def __init__(self, origin: Origin, path: ModulePath, content: Tensor) -> None:
        super().__init__()
        self.flow = Flow()
        self._origin, self._path = origin, path
        self.content = content
        self._made: dict[int, tuple[int, Tensor]] = {}
        self._off: list[Place] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = function_name(func)
        if name == "_set_grad_enabled":
            self._switch(bool(args[0]))
            return func(*args, **kwargs)
        sources = [t for t in _flat((args, tuple(kwargs.values()))) if isinstance(t, Tensor)]
        wanted = any(t.requires_grad for t in sources)
        result = func(*args, **kwargs)
        tensors = [tensor for tensor in _flat(result) if isinstance(tensor, Tensor)]
        for tensor in tensors:
            if tensor.is_floating_point():
                self._add(name, sources, tensor, wanted)
        if wanted and tensors and all(_counts(tensor) for tensor in tensors):
            # an index that was chosen (argmax): what is looked up by it has no gradient from here
            self._cut(name, find_place(self._origin, self._path.name, sys._getframe(1)))
        return result

    def finish(self, output: Tensor) -> None:
        """Says which tensor is the output."""
        self.flow.end = self._made.get(id(output), (-1, output))[0]

    def _switch(self, on: bool) -> None:
        if on:
            self._off = self._off[:-1]
        else:
            self._off.append(find_place(self._origin, self._path.name, sys._getframe(2)))

    def _add(self, name: str, sources: list[Tensor], tensor: Tensor, wanted: bool) -> None:
        place = find_place(self._origin, self._path.name, sys._getframe(2))
        known = tuple(self._made[id(t)][0] for t in sources if id(t) in self._made)
        index = len(self.flow.steps)
        step = Step(index, name, place, known, typical(tensor), sound=_sound(tensor))
        self.flow.steps.append(step)
        if any(t is self.content for t in sources):
            self.flow.starts.add(index)
        self._made[id(tensor)] = (index, tensor)
        if tensor.requires_grad:
            tensor.register_hook(lambda grad, step=step: _store(step, grad))
        elif wanted:
            self._cut(name, place)
        if name in FLAT and wanted:
            self.flow.cuts.append(Cut(name, place, cut_key(name, place)))

    def _cut(self, name: str, place: Place) -> None:
        kind = name
        if self._off and not torch.is_grad_enabled():
            kind, place = "no_grad", self._off[-1]
        cut = Cut(kind, place, cut_key(kind, place))
        if cut not in self.flow.cuts:
            self.flow.cuts.append(cut)


class Bypass(TorchFunctionMode):
    """Lets gradients through the cuts at the given keys."""

    def __init__(self, origin: Origin, keys: tuple[str, ...]) -> None:
        super().__init__()
        self._origin, self._keys = origin, set(keys)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = function_name(func)
        if name in FLAT or name in ("detach", "detach_", "data", "_set_grad_enabled"):
            kind = "no_grad" if name == "_set_grad_enabled" else name
            place = find_place(self._origin, "", sys._getframe(1))
            if cut_key(kind, place) in self._keys:
                if kind != "no_grad":
                    return args[0]
                if not args[0]:
                    return None
        return func(*args, **kwargs)


def _counts(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype is not torch.bool


def function_name(func: Any) -> str:
    """The name of a torch function; "data" for reading that property."""
    owner = getattr(func, "__self__", None)
    if getattr(func, "__name__", "") == "__get__" and owner is not None:
        return str(getattr(owner, "__name__", "?"))
    return str(getattr(func, "__name__", func))


def cut_key(kind: str, place: Place) -> str:
    """The same in every run."""
    return f"{kind}|{place.file}|{place.line}"


def trunk(flow: Flow) -> list[Step]:
    """Steps that every path from content to output goes through: paths to it times paths from it are all paths."""
    if flow.end < 0:
        return []
    into, out_of = [0] * len(flow.steps), [0] * len(flow.steps)
    for step in flow.steps:
        into[step.index] = (step.index in flow.starts) + sum(into[s] for s in step.sources)
    out_of[flow.end] = 1
    for step in reversed(flow.steps):
        for source in step.sources:
            out_of[source] += out_of[step.index]
    total = into[flow.end]
    return [s for s in flow.steps if total and into[s.index] * out_of[s.index] == total]


def rms(tensor: Tensor) -> float:
    """Root mean square."""
    return float(tensor.detach().double().square().mean().sqrt()) if tensor.numel() else 0.0


def first_bad_gradient(flow: Flow) -> Step | None:
    """The call whose own gradient is finite and that hands back one that is not, the first on the way back.

    A tensor that several calls read sums what they hand back: one of them is to blame only where the others' own
    gradients are finite.
    """
    readers: dict[int, list[Step]] = {}
    for step in flow.steps:
        for source in step.sources:
            readers.setdefault(source, []).append(step)
    for step in reversed(flow.steps):
        bad = [s for s in step.sources if not flow.steps[s].finite]
        if step.gradient is not None and any(all(r.finite for r in readers[s]) for s in bad):
            return step
    return None


def typical(tensor: Tensor) -> float:
    """The median over rows, those that are zero left out, of the root mean square along the last axis.

    Not the mean: one [CLS] row that starts at zero in front of a norm has a gradient 1/√eps times the others'.
    """
    if tensor.dim() < 2:
        return rms(tensor)
    rows = tensor.detach().double().square().mean(-1).sqrt().flatten()
    rows = rows[rows > 0]
    return float(rows.median()) if rows.numel() else 0.0


def first_unsound(flow: Flow) -> Step | None:
    """The first call that makes NaN or +inf out of results that are sound."""
    return next((s for s in flow.steps if not s.sound and all(flow.steps[i].sound for i in s.sources)), None)


def _sound(tensor: Tensor) -> bool:
    values = tensor.detach()
    return not bool((torch.isnan(values) | (values == torch.inf)).any())


def _store(step: Step, grad: Tensor) -> None:
    step.gradient = typical(grad)
    step.finite = step.finite and bool(torch.isfinite(grad).all())


def _flat(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in _flat(item)]
    return [value]
