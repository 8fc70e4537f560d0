"""Finds what draws random numbers in a recorded run, and how to take the chance out of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from encdoctor.evidence.modes import Draw
from encdoctor.lab.sites import VIEWS, base_name
from encdoctor.lab.trace import COMPARISONS, Edit, Node, Operation, Ref, Trace
from encdoctor.model import Place
from encdoctor.target import Origin

DROPS = {"bernoulli", "native_dropout", "_fused_dropout", "alpha_dropout", "feature_dropout"}
DRAWS = DROPS | {
    "rand", "randn", "rand_like", "randn_like", "randint", "randint_like", "random", "normal", "normal_functional",
    "uniform", "multinomial", "exponential", "randperm", "poisson", "cauchy", "log_normal", "geometric",
    "rrelu_with_noise",
}  # fmt: skip


def draws_in(trace: Trace) -> Iterator[Draw]:
    """Every operation that draws, in order."""
    users = trace.users()
    for node in trace.nodes:
        op = base_name(node.op)
        if op in DRAWS and not _draws_nothing(node):
            thins = op in DROPS or _is_compared(users, node)
            yield Draw(node.key, op, node.module, node.place, thins, "?" not in node.module, _rate(node))


def _draws_nothing(node: Node) -> bool:
    """A dropout that is told it does not train."""
    return base_name(node.op) == "native_dropout" and len(node.args) > 2 and node.args[2] is False


def _is_compared(users: dict[int, list[Node]], node: Node, depth: int = 0) -> bool:
    """Whether what was drawn is turned into a yes or no: `torch.rand(…) < keep`, or its floor."""
    for user in users.get(node.index, []):
        op = base_name(user.op)
        if op in COMPARISONS or op in ("floor", "topk", "argsort", "sort"):
            return True
        if op in VIEWS | {"add", "sub", "rsub"} and depth < 4 and _is_compared(users, user, depth + 1):
            return True
    return False


def _rate(node: Node) -> float | None:
    op = base_name(node.op)
    given = node.args[1] if len(node.args) > 1 else node.kwargs.get("p")
    if op not in ("bernoulli", "native_dropout") or not isinstance(given, int | float):
        return None
    return 1.0 - float(given) if op == "bernoulli" else float(given)


def is_random(trace: Trace, ref: Ref) -> bool:
    """Whether a tensor was drawn a few operations ago."""
    return bool(drawn_by(trace, ref))


def drawn_by(trace: Trace, ref: Ref, steps: int = 6) -> str:
    """The key of the draw that a tensor was made of a few operations ago, "" where there is none."""
    while ref.node >= 0 and steps:
        node = trace.nodes[ref.node]
        if base_name(node.op) in DRAWS:
            return node.key
        if not node.refs:
            return ""
        ref, steps = node.refs[0], steps - 1
    return ""


def watch_caller(origin: Origin, draw: Draw, seen: dict[str, Place]) -> Edit:
    """Notes who made a helper function draw: the call is to blame where the helper cannot know the mode."""

    def edit(op: Operation) -> Any:
        frame: FrameType | None = sys._getframe(1)
        by_torch = False
        while frame is not None and not _is_at(frame, draw.place):
            by_torch = by_torch or frame.f_globals.get("__name__") == "torch.nn.functional"
            frame = frame.f_back
        if frame is not None and frame.f_back is not None and _was_told(frame, by_torch):
            caller = frame.f_back
            if origin.owns(caller.f_globals.get("__name__", ""), caller.f_code.co_filename):
                seen[draw.key] = replace(draw.place, file=caller.f_code.co_filename, line=caller.f_lineno)
        return op.output

    return edit


def _is_at(frame: FrameType, place: Place) -> bool:
    return frame.f_code.co_filename == place.file and frame.f_lineno == place.line


def _was_told(frame: FrameType, by_torch: bool) -> bool:
    """Whether a plain function was told to draw, or was called though it always draws.

    One that calls torch's dropout and is not told anything has its own default argument to blame.
    """
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount]
    told = any(frame.f_locals.get(name) is True for name in names)
    return "self" not in names and (told or not by_torch)


def without_chance() -> Edit:
    """Each dropout by its mean, all else by one fixed draw. In-place operations are written into."""
    return _mean_or_fixed


def _mean_or_fixed(op: Operation) -> Any:
    name = op.function._schema.name.split("::")[-1].rstrip("_")
    if name == "native_dropout":
        return op.args[0].clone(), torch.ones_like(op.args[0], dtype=torch.bool)
    if name == "bernoulli":
        return _write(op, _probability(op))
    if not isinstance(op.output, Tensor):
        return op.output
    return _write(op, _fixed(name, op))


def _probability(op: Operation) -> Any:
    given = op.args[1] if len(op.args) > 1 else op.kwargs.get("p")
    if given is None and op.function._schema.overload_name == "float":
        return 0.5  # an argument that equals its default is not handed on
    return given if isinstance(given, int | float | Tensor) else op.args[0]


def _fixed(name: str, op: Operation) -> Tensor:
    output: Tensor = op.output
    generator = torch.Generator().manual_seed(0)
    if not output.is_floating_point():
        # whole numbers: a draw of the same kind under the fixed generator
        return torch.arange(output.numel()).remainder(int(output.max()) + 1).reshape(output.shape).to(output)
    normal = name in ("randn", "randn_like", "normal", "normal_functional")
    draw = torch.randn if normal else torch.rand
    return draw(output.shape, generator=generator, dtype=torch.float64).to(output)


def _write(op: Operation, value: Any) -> Tensor:
    """The value in the output's memory, as an in-place operation's caller may go on with what it passed in."""
    output: Tensor = op.output
    if isinstance(value, Tensor):
        return output.copy_(value.clone())
    return output.fill_(value)
