"""Trial calls for binding: on a copy where there can be one, without gradients, leaving no trace."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from encdoctor.contract import CallContract
from encdoctor.lab.batches import Call, make_call
from encdoctor.lab.situations import Situation

BATCH = 3
LENGTH = 13
# An image of 1024 pixels a side, three channels and three samples has nine million numbers.
LARGEST_INPUT = 10_000_000
# A frozen or zero-initialised branch (ReZero, LayerScale) hides what mixes; on the copy it is opened this far.
OPENED = 0.1


@dataclass(frozen=True)
class Tried:
    """One trial call: the contract it was made by, the output or the error, how many operations ran before it."""

    contract: CallContract
    length: int
    output: Any = None
    error: Exception | None = None
    operations: int = 0
    tables: tuple[int, ...] = ()

    @property
    def ran(self) -> bool:
        """Whether the call came back."""
        return self.error is None


class Bench:
    """Runs a model's copy (or, where it cannot be copied, the model itself, restored afterwards)."""

    def __init__(self, model: nn.Module, device: str = "cpu", on_enter: Callable[[str], None] | None = None) -> None:
        self.device, self._on_enter = device, on_enter
        self.original = model
        self.model = model
        self.calls = 0

    @contextmanager
    def open(self) -> Iterator[Bench]:
        """Within it trials can be made; afterwards the model, its modes and the random state are as before."""
        modes = {m: m.training for m in self.original.modules()}
        with torch.random.fork_rng(devices=[self.device] if self.device.startswith("cuda") else []):
            try:
                self.model = copy.deepcopy(self.original)
                kept: dict[str, Tensor] = {}
            except Exception:  # whatever refuses: it is run in place then, and the lab's report says so
                self.model = self.original
                kept = {k: v.detach().clone() for k, v in self.original.state_dict().items()}
            try:
                self.model.eval()
                yield self
            finally:
                for module, training in modes.items():
                    module.training = training
                if kept:
                    self.original.load_state_dict(kept)

    @property
    def dtype(self) -> str:
        """The model's own dtype, as a name."""
        for tensor in (*self.model.parameters(), *self.model.buffers()):
            if tensor.is_floating_point():
                return str(tensor.dtype).removeprefix("torch.")
        return "float32"

    @property
    def copied(self) -> bool:
        """Whether trials run on a copy, whose weights may be changed."""
        return self.model is not self.original

    def situation(self, length: int = LENGTH, batch: int = BATCH, **changes: Any) -> Situation:
        """A batch without padding, in the model's dtype."""
        return replace(Situation(lengths=(length,) * batch, length=length, dtype=self.dtype), **changes)

    def call(self, contract: CallContract, situation: Situation) -> Call:
        """The arguments of a trial."""
        return make_call(contract, situation, self.device)

    def forward(self, call: Call) -> Any:
        """Runs the model; errors come through."""
        self.calls += 1
        with torch.no_grad(), warnings.catch_warnings(), self._told():
            warnings.simplefilter("ignore")
            return self.model(*call.args, **call.kwargs)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Tells which module is entered, for whoever has to say where a call hung."""
        if self._on_enter is None:
            yield
            return
        names = {id(module): name for name, module in self.model.named_modules()}
        tell = self._on_enter
        handle = register_module_forward_pre_hook(lambda module, _: tell(names.get(id(module), type(module).__name__)))
        try:
            yield
        finally:
            handle.remove()

    def attempt(self, contract: CallContract, length: int = LENGTH, batch: int = BATCH, **changes: Any) -> Tried:
        """Tries a contract without padding; after an error, once more to see how far it gets."""
        situation = self.situation(length, batch, **changes)
        size = math.prod(batch if axis == "B" else length if axis == "S" else int(axis) for axis in contract.shape)
        if size > LARGEST_INPUT:
            return Tried(contract, length, error=ValueError(f"an input of {size} numbers is too large to try"))
        try:
            call = self.call(contract, situation)
            return Tried(contract, length, output=self.forward(call))
        except Exception as error:
            watch = self._watched(contract, situation)
            return Tried(contract, length, error=error, operations=watch.operations, tables=tuple(watch.tables))

    def tables(self, contract: CallContract, length: int) -> tuple[int, ...]:
        """Sizes of the tables that the ids index."""
        return tuple(self._watched(contract, self.situation(length)).tables)

    def _watched(self, contract: CallContract, situation: Situation) -> Watch:
        """How far a call gets and what it looks up; where it raises, `attempt` has kept the error."""
        watch = Watch(None)
        with suppress(Exception):
            call = self.call(contract, situation)
            watch = Watch(call.content)
            with watch:
                self.forward(call)
        return watch

    def open_branches(self) -> None:
        """On a copy, gives weights that are zero or nearly so a size at which their branch can be seen."""
        if not self.copied:
            return
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                if name.endswith("bias") or not parameter.is_floating_point() or parameter.numel() == 0:
                    continue
                if parameter.abs().max() < 1e-3:
                    noise = torch.randn(parameter.shape, generator=generator)
                    parameter.copy_(OPENED * noise.abs().to(parameter.dtype))


class Watch(TorchDispatchMode):
    """Counts operations and notes the tables that a tensor of ids looks up."""

    def __init__(self, ids: Tensor | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ids = ids if ids is not None and not ids.is_floating_point() else None
        self.operations = 0
        self.tables: list[int] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.operations += 1
        if self.ids is not None:
            self._note_lookup(func, args)
        return result

    def _note_lookup(self, func: Any, args: tuple[Any, ...]) -> None:
        name = func.overloadpacket.__name__
        if name not in ("embedding", "index", "index_select") or len(args) < 2 or not isinstance(args[0], Tensor):
            return
        indices = args[-1] if name == "index_select" else args[1]
        if isinstance(indices, (list, tuple)):
            if len(indices) != 1:
                return
            indices = indices[0]
        if isinstance(indices, Tensor) and self._are_ids(indices):
            self.tables.append(args[0].shape[0])

    def _are_ids(self, indices: Tensor) -> bool:
        assert self.ids is not None
        if indices.numel() != self.ids.numel() or indices.is_floating_point():
            return False
        return any(
            torch.equal(indices.reshape(-1).long(), ids.reshape(-1).long())
            for ids in (self.ids, self.ids.transpose(0, -1))
        )


def text_of(error: Exception) -> str:
    """An error in one short line."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:160]}"
