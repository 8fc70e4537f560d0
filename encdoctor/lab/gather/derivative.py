"""Compares backward with a central difference along one random direction, and looks for who is to blame."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from encdoctor.evidence.derivative import Derivative
from encdoctor.lab.gather.gradients import projection_loss
from encdoctor.lab.lab import Lab
from encdoctor.lab.situations import Situation
from encdoctor.lab.trace import Trace
from encdoctor.model import Place

# Central differences in float64: the error of rounding (1e-16/h) and of the third derivative (h²) meet near 1e-5.
STEP = 1e-5
# Beyond this the two are compared more closely; the check's own limit is wider.
DOUBTFUL = 1e-3
VIEWS = {"view", "select", "slice", "alias", "transpose", "t", "permute", "unsqueeze", "squeeze", "expand"}


def gather_derivative(lab: Lab) -> Derivative:
    """Eval mode; two forwards and one backward where they agree."""
    if lab.dtype != "float64":
        return Derivative(False, "the model does not run in float64, in which alone the comparison is sharp")
    situation = replace(lab.padded, dtype="float64", grad=True)
    model = lab.fresh().double()
    loss = _backward(lab, model, situation)
    if loss is None:
        return Derivative(False, "no gradient leaves the output")
    functions = list(_functions(loss))
    direction = _direction(model)
    analytic = _along(model, direction)
    numeric = _difference(lab, model, situation, direction, STEP)
    if not (math.isfinite(analytic) and math.isfinite(numeric)):
        return Derivative(False, "outputs or gradients are not finite")
    found = Derivative(True, "", analytic, numeric)
    if found.error < DOUBTFUL:
        return found
    finer = _difference(lab, model, situation, direction, STEP / 4)
    if abs(finer - numeric) > DOUBTFUL * max(abs(finer), abs(numeric)):
        return replace(found, smooth=False)
    return _blamed(lab, model, situation, direction, found, functions)


def _backward(lab: Lab, model: nn.Module, situation: Situation) -> Tensor | None:
    model.zero_grad()
    with torch.enable_grad():
        output = lab.forward(model, situation).tensor
        if not output.requires_grad:
            return None
        loss = projection_loss(lab, output, situation)
        lab.backward(loss)
    return loss


def _direction(model: nn.Module) -> dict[str, Tensor]:
    """Random, for each parameter of about its own size; those that get no gradient stay as they are."""
    generator = torch.Generator().manual_seed(23)
    drawn = {}
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64).to(parameter)
        if parameter.grad is not None and bool(parameter.grad.any()):
            drawn[name] = noise * (float(parameter.detach().square().mean().sqrt()) or 0.01)
    return drawn


def _along(model: nn.Module, direction: dict[str, Tensor]) -> float:
    named = dict(model.named_parameters())
    grads = ((named[n].grad, v) for n, v in direction.items())
    return sum(float((g * v).sum()) for g, v in grads if g is not None)


def _difference(lab: Lab, model: nn.Module, situation: Situation, direction: dict[str, Tensor], step: float) -> float:
    named = dict(model.named_parameters())
    kept = {name: named[name].detach().clone() for name in direction}
    values = []
    with torch.no_grad():
        for sign in (1, -1):
            for name, moved in direction.items():
                named[name].copy_(kept[name] + sign * step * moved)
            output = lab.forward(model, replace(situation, grad=False)).tensor
            values.append(float(projection_loss(lab, output, situation)))
        for name, value in kept.items():
            named[name].copy_(value)
    return (values[0] - values[1]) / (2 * step)


# ---- who is to blame -------------------------------------------------------------------------------------------


def _blamed(
    lab: Lab,
    model: nn.Module,
    situation: Situation,
    direction: dict[str, Tensor],
    found: Derivative,
    functions: list[type],
) -> Derivative:
    for cls in functions:
        seen: list[bool] = []
        with _plain(cls, seen):
            _backward(lab, model, situation)
        named = dict(model.named_parameters())
        if all(seen) and seen:
            return replace(found, deliberate=f"{cls.__name__} passes its input on and changes the gradient")
        if any(named[n].grad is None or not bool(named[n].grad.any()) for n in direction):  # type: ignore[union-attr]
            return replace(found, deliberate=f"{cls.__name__} stands in for a derivative that is zero")
        if replace(found, analytic=_along(model, direction)).error < DOUBTFUL:
            return replace(found, culprit=f"{cls.__name__}.backward", confirmed=True, places=(_line(lab, cls),))
    trace = lab.trace(replace(situation, grad=False))
    hidden = tuple(dict.fromkeys(_hidden_writes(trace)))
    if hidden:
        return replace(found, culprit="a write that autograd does not see", places=hidden)
    return found


def _functions(loss: Tensor) -> Iterator[type]:
    """The autograd functions, other than torch's own, that the loss came through."""
    todo, seen, told = [loss.grad_fn], set(), set()
    while todo:
        node = todo.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        cls = getattr(type(node), "_forward_cls", None)
        if cls is not None and cls not in told and not cls.__module__.startswith("torch."):
            told.add(cls)
            yield cls
        todo += [following for following, _ in node.next_functions]


class _Context:
    """Takes what a forward wants to keep."""

    needs_input_grad = (True,) * 32

    def save_for_backward(self, *tensors: Tensor) -> None:
        self.saved_tensors = tensors

    def mark_dirty(self, *_: Tensor) -> None: ...

    def mark_non_differentiable(self, *_: Tensor) -> None: ...

    def set_materialize_grads(self, _: bool) -> None: ...


@contextmanager
def _plain(cls: Any, identity: list[bool]) -> Iterator[None]:
    """Lets autograd differentiate what the function's forward does; notes whether it gave back its input."""

    def apply(*args: Any) -> Any:
        given = [a for a in args if isinstance(a, Tensor)]
        own_context = cls.setup_context is not torch.autograd.Function.setup_context
        result = cls.forward(*args) if own_context else cls.forward(_Context(), *args)
        same = isinstance(result, Tensor) and any(
            g.shape == result.shape and torch.equal(g.detach(), result.detach()) for g in given
        )
        identity.append(same)
        return result

    cls.apply = apply
    try:
        yield
    finally:
        del cls.apply


def _line(lab: Lab, cls: Any) -> Place:
    try:
        file, (_, line) = inspect.getsourcefile(cls.backward) or "", inspect.getsourcelines(cls.backward)
    except (OSError, TypeError):
        return Place("", cls.__name__)
    return Place("", cls.__name__, file, line, lab.origin.owns(cls.__module__, file))


def _hidden_writes(trace: Trace) -> Iterator[Place]:
    """Operations that write through `.data` or a detached alias."""
    for node in trace.nodes:
        if not node.op.endswith("_") or node.op.startswith("_") or not node.refs:
            continue
        made = trace.nodes[node.refs[0].node] if node.refs[0].node >= 0 else None
        while made is not None and made.op in VIEWS and made.refs and made.refs[0].node >= 0:
            made = trace.nodes[made.refs[0].node]
        if made is not None and made.op == "detach" and node.place.own:
            yield node.place
