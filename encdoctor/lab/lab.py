"""The only room in which the user's code runs.

A `Lab` owns fresh copies of the model, one a dtype, runs them in situations, remembers every run, and leaves no
trace: random state, global switches, hooks and modes are put back, also after an exception. Evidence is gathered
through it once and shared by all checks.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from encdoctor.contract import CallContract
from encdoctor.evidence.runs import Raised
from encdoctor.intent import Intent
from encdoctor.lab.batches import Call, make_call
from encdoctor.lab.conditions import quiet, slow_attention, untouched
from encdoctor.lab.custody import Custody
from encdoctor.lab.outputs import canonical, pick
from encdoctor.lab.situations import FULL, PADDED, Situation, describe
from encdoctor.lab.trace import CONTENT, MASK, Edit, ModulePath, Trace, Tracer, find_place
from encdoctor.model import Place
from encdoctor.target import Origin

E = TypeVar("E")


@dataclass
class Ran:
    """One forward: the output as (B, S, F), detached, or what was raised. `raw` is what forward returned."""

    output: Tensor | None
    raised: Raised | None
    call: Call
    raw: Any = None

    @property
    def tensor(self) -> Tensor:
        """The output; for callers that checked `raised`, or want `NotMeasured` otherwise."""
        if self.output is None:
            raise NotMeasured(self.raised.summary if self.raised else "forward returned no tensor")
        return self.output


A_FORWARD = "a forward that runs"
A_BACKWARD = "a backward that runs"


class NotMeasured(Exception):
    """Evidence could not be gathered; the text says why, `settle` what would settle it."""

    def __init__(self, reason: str, settle: str = A_FORWARD) -> None:
        super().__init__(reason)
        self.settle = settle


@dataclass(frozen=True)
class Treatment:
    """What is changed while the model runs: edits of operations by key, a function mode, another mask."""

    edits: Mapping[str, Edit] | None = None
    function_mode: Callable[[], contextlib.AbstractContextManager[Any]] | None = None
    contract: CallContract | None = None
    prepare: Callable[[nn.Module], None] | None = None


    def over(self, other: Treatment) -> Treatment:
        """Both at once; where they touch the same thing, this one's word counts."""
        modes = [mode for mode in (other.function_mode, self.function_mode) if mode is not None]
        return Treatment(
            {**(other.edits or {}), **(self.edits or {})},
            (lambda: _Stacked(modes)) if modes else None,
            self.contract or other.contract,
            self.prepare or other.prepare,
        )


class _Stacked(contextlib.ExitStack):
    """Several function modes, entered together."""

    def __init__(self, modes: list[Callable[[], contextlib.AbstractContextManager[Any]]]) -> None:
        super().__init__()
        self._modes = modes

    def __enter__(self) -> _Stacked:
        for mode in self._modes:
            self.enter_context(mode())
        return self


class Lab:
    """Runs one model under one contract. `device` is where copies live."""

    def __init__(
        self,
        model: nn.Module,
        contract: CallContract,
        intent: Intent,
        origin: Origin,
        *,
        device: str = "cpu",
        seed: int = 0,
        on_enter: Callable[[str], None] | None = None,
        treatment: Treatment | None = None,
        rebuild: Callable[[], nn.Module] | None = None,
    ) -> None:
        self.model, self.intent, self.origin = model, intent, origin
        self.treatment = treatment or Treatment()
        self.contract = self.treatment.contract or contract
        self.device, self.seed, self.on_enter, self.rebuild = device, seed, on_enter, rebuild
        self.custody: Custody | None = None
        self.passes: Counter[str] = Counter()
        self._models: dict[str, nn.Module] = {}
        self._runs: dict[Situation, Ran] = {}
        self._traces: dict[Situation, Trace] = {}
        self._evidence: dict[type, Any] = {}
        self._gathering: list[str] = []

    # ---- models ----------------------------------------------------------------------------------------------

    def copy_of(self, dtype: str) -> nn.Module:
        """A copy of the model in `dtype`, in eval mode, made once."""
        if dtype not in self._models:
            model = self.fresh()
            if self.custody is not None and dtype != self.own_dtype:
                raise NotMeasured(
                    "the model cannot be copied, so it is run in its own dtype only",
                    "a class or factory, or a model that copy.deepcopy can copy",
                )
            self._models[dtype] = model.to(getattr(torch, dtype))
        return self._models[dtype]

    def model_for(self, situation: Situation) -> nn.Module:
        """The copy to run in a situation; train mode may change buffers (running statistics), so it gets its own."""
        if not situation.training:
            return self.copy_of(situation.dtype)
        return self.fresh().to(getattr(torch, situation.dtype))

    def fresh(self) -> nn.Module:
        """A copy of the model as it was given, in eval mode, for use that changes it.

        What cannot be copied is built again, from a class or factory; an instance is run in place, under custody.
        """
        with quiet():
            model = self._copied().to(self.device).eval()
        if self.treatment.prepare is not None:
            self.treatment.prepare(model)
        return model

    def _copied(self) -> nn.Module:
        if self.custody is None:
            try:
                return copy.deepcopy(self.model)
            except Exception:  # whatever refuses the copy: built again, or run in place, which the report says
                rebuilt = self._rebuilt()
                if rebuilt is not None:
                    return rebuilt
                self.custody = Custody(self.model)
        self.custody.restore()
        return self.model

    def _rebuilt(self) -> nn.Module | None:
        try:
            model = self.rebuild() if self.rebuild is not None else None
            if model is not None:
                model.load_state_dict(self.model.state_dict())
        except Exception:  # then it is run in place, which the report says
            return None
        return model

    def give_back(self) -> None:
        """Restores a model that was run in place."""
        if self.custody is not None:
            self.custody.restore()

    @functools.cached_property
    def dtype(self) -> str:
        """float64 where an unpadded batch runs in it and comes out finite, else the model's own."""
        for dtype in ("float64", self.own_dtype):
            try:
                ran = self.run(replace(self.full, dtype=dtype))
            except NotMeasured:  # cannot be copied, so not converted
                continue
            if ran.output is not None and bool(torch.isfinite(ran.output).all()):
                return dtype
        return self.own_dtype

    @property
    def own_dtype(self) -> str:
        """The dtype of the model's first floating parameter."""
        for parameter in self.model.parameters():
            if parameter.is_floating_point():
                return str(parameter.dtype).removeprefix("torch.")
        return "float32"

    # ---- situations ------------------------------------------------------------------------------------------

    @property
    def full(self) -> Situation:
        """Three samples, nothing padded."""
        return self.fit(FULL)

    @property
    def padded(self) -> Situation:
        """Three samples of different real lengths."""
        return self.fit(PADDED)

    def fit(self, situation: Situation) -> Situation:
        """Scales lengths to what the contract allows."""
        longest = self.contract.max_length
        usual = self.contract.settings.get("length")
        length = int(usual) if usual else situation.length
        if longest is not None:
            length = min(length, longest)
        scale = length / situation.length
        lengths = tuple(max(1, round(n * scale)) if n else 0 for n in situation.lengths)
        return replace(situation, length=length, lengths=lengths)

    # ---- running ---------------------------------------------------------------------------------------------

    def run(self, situation: Situation) -> Ran:
        """One forward without gradients, remembered. Never raises for what the user's code raises."""
        if situation not in self._runs:
            with torch.no_grad():
                self._runs[situation] = self.forward(self.model_for(situation), situation)
        return self._runs[situation]

    def forward(
        self,
        model: nn.Module,
        situation: Situation,
        call: Call | None = None,
        inside: Callable[[ModulePath, Call], contextlib.AbstractContextManager[Any]] | None = None,
    ) -> Ran:
        """One forward of `model`, gradients as the caller set them; `inside` makes a mode to run it under."""
        self.count("forward")
        with self._conditions(situation), ModulePath(model, self.origin, self.on_enter) as path:
            model.train(situation.training)
            call = call or make_call(self.contract, situation, self.device)
            try:
                with self._treated(path, call), inside(path, call) if inside else contextlib.nullcontext():
                    raw = model(*call.args, **call.kwargs)
            except Exception as error:
                return Ran(None, self._raised(error, situation, model), call)
        try:
            output = canonical(pick(raw, self.contract.output), self.contract.output_axes)
        except (KeyError, IndexError, AttributeError, TypeError) as error:
            return Ran(None, Raised.plain("no-output", f"forward returned no tensor there: {error}"), call, raw)
        return Ran(output, None, call, raw)

    def trace(self, situation: Situation) -> Trace:
        """One recorded forward, math attention, no gradients; remembered. Raised exceptions leave a partial trace."""
        if situation not in self._traces:
            self._traces[situation] = self.record(situation, make_call(self.contract, situation, self.device))
        return self._traces[situation]

    def record(self, situation: Situation, call: Call) -> Trace:
        """The same for a call made elsewhere; not remembered."""
        self.count("trace")
        model = self.model_for(situation)
        conditions = self._conditions(replace(situation, fast_path=False))
        with conditions, torch.no_grad(), ModulePath(model, self.origin, self.on_enter) as path:
            model.train(situation.training)
            tracer = Tracer(path, self.origin, _taints(call), self.treatment.edits, keep=call.keep)
            path.on_call = tracer.note_call
            mode = self.treatment.function_mode
            try:
                with mode() if mode else contextlib.nullcontext(), tracer:
                    tracer.trace.output = model(*call.args, **call.kwargs)
            except Exception:
                tracer.trace.output = None
            finally:
                model.eval()
            tracer.trace.unregistered = list(path.unregistered.values())
        return tracer.trace

    def backward(self, loss: Tensor) -> None:
        """One backward, booked. Raises NotMeasured for what it raises."""
        self.count("backward")
        try:
            with quiet():
                loss.backward()
        except RuntimeError as error:
            raise NotMeasured(f"backward raised {_last_line(error)}", A_BACKWARD) from error

    def count(self, what: str) -> None:
        """Books one pass to the evidence being gathered."""
        self.passes[what] += 1
        if self._gathering:
            self.passes[f"{self._gathering[-1]}.{what}"] += 1

    # ---- evidence --------------------------------------------------------------------------------------------

    def get(self, kind: type[E]) -> E:
        """The evidence of that type, gathered once. A failed gathering raises `NotMeasured`, also when asked again."""
        from encdoctor.lab.gatherers import gatherer_of

        if kind not in self._evidence:
            self._gathering.append(kind.__name__)
            try:
                with untouched():
                    self._evidence[kind] = gatherer_of(kind)(self)
            except NotMeasured as reason:
                self._evidence[kind] = reason
            except Exception as error:
                self._evidence[kind] = Broken(kind.__name__, error)
            finally:
                self._gathering.pop()
                self.give_back()
        found = self._evidence[kind]
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, kind)
        return found

    def gathered(self, kind: type[E]) -> E | None:
        """The evidence if it was gathered and could be; never gathers."""
        found = self._evidence.get(kind)
        return found if isinstance(found, kind) else None

    def under(self, treatment: Treatment) -> Lab:
        """The same model under a treatment, with a memory of its own; passes are booked here."""
        lab = Lab(
            self.model,
            self.contract,
            self.intent,
            self.origin,
            device=self.device,
            seed=self.seed,
            on_enter=self.on_enter,
            treatment=treatment.over(self.treatment),
            rebuild=self.rebuild,
        )
        lab.passes, lab.custody = self.passes, self.custody
        lab._gathering = ["trial"]
        return lab

    # ---- inside ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _conditions(self, situation: Situation) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(quiet())
            seed = self.seed + situation.seed
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed)
            if not situation.fast_path:
                stack.enter_context(slow_attention())
            if situation.autocast:
                stack.enter_context(
                    torch.autocast(torch.device(self.device).type, getattr(torch, situation.autocast))
                )
            yield

    @contextlib.contextmanager
    def _treated(self, path: ModulePath, call: Call) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            if self.treatment.function_mode is not None:
                stack.enter_context(self.treatment.function_mode())
            if self.treatment.edits:
                stack.enter_context(slow_attention())
                stack.enter_context(Tracer(path, self.origin, {}, self.treatment.edits, record=False, keep=call.keep))
            yield

    def _raised(self, error: Exception, situation: Situation, model: nn.Module) -> Raised:
        names = {id(module): name for name, module in model.named_modules()}
        module, inside_torch, places = "", False, []
        for frame, line in traceback.walk_tb(error.__traceback__):
            owner = frame.f_locals.get("self")
            if isinstance(owner, nn.Module) and id(owner) in names and frame.f_code.co_name != "_call_impl":
                module = names[id(owner)]
            name = frame.f_globals.get("__name__", "")
            if self.origin.owns(name, frame.f_code.co_filename):
                class_name = type(owner).__name__ if owner is not None else ""
                places.append(Place(module, class_name, frame.f_code.co_filename, line, True))
                inside_torch = False
            elif name.startswith("torch.nn.modules"):
                inside_torch = True
        if not places:
            places = [find_place(self.origin, module, _deepest(error))]
        return Raised(
            type(error).__name__, _last_line(error), tuple(reversed(places)), describe(situation), inside_torch
        )


class Broken(NotMeasured):
    """A gatherer failed on a fault of ours."""

    def __init__(self, kind: str, error: Exception) -> None:
        super().__init__(f"{kind} could not be gathered: {_last_line(error)}")
        self.__cause__ = error


def _taints(call: Call) -> dict[int, int]:
    taints = {id(value): MASK for value in call.kwargs.values() if isinstance(value, Tensor)}
    taints[id(call.content)] = CONTENT
    return taints


def _last_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(": ")


def _deepest(error: Exception) -> Any:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return frames[-1] if frames else None
