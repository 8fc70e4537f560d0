"""Where in forward's result the hidden states are, what its axes mean, and which position answers to which."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from encdoctor.contract import CallContract, InputKind
from encdoctor.lab.binding.trials import BATCH, Bench, Tried
from encdoctor.lab.outputs import pick

_HIDDEN = re.compile(
    r"last_hidden|^\.?hidden|encoded|encoder_out|sequence|states?$|^x$|token|features?$|memory|represent", re.I
)
_OTHERS = re.compile(r"attn|attention|weights|mask|pool|logit|loss|score|cls|past|length|class", re.I)
_DEEPEST = 3


@dataclass(frozen=True)
class Found:
    """A floating tensor in a result: its path, and the last name or index on it."""

    path: str
    tensor: Tensor
    depth: int
    from_layers: bool = False


def tensors_in(value: Any, path: str = "", depth: int = 0) -> Iterator[Found]:
    """Every floating tensor of a nested result, with the path that leads to it."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield Found(path, value, depth)
        return
    if depth >= _DEEPEST or value is None:
        return
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        if _is_layers(value):
            yield Found(f"{path}[{len(value) - 1}]", value[-1], depth + 1, from_layers=True)
            return
        for place, item in enumerate(value):
            yield from tensors_in(item, f"{path}[{place}]", depth + 1)
    else:
        for step, item in _members(value):
            yield from tensors_in(item, path + step, depth + 1)


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    if dataclasses.is_dataclass(value):
        names = [f.name for f in dataclasses.fields(value)]
    elif hasattr(value, "_fields"):
        names = list(value._fields)
    elif isinstance(value, Mapping):
        yield from ((f"[{key!r}]", item) for key, item in value.items())
        return
    elif hasattr(value, "__dict__") and not isinstance(value, torch.nn.Module):
        names = list(vars(value))
    else:
        return
    for name in names:
        yield f".{name}", getattr(value, name, None)


def _is_layers(value: list[Any] | tuple[Any, ...]) -> bool:
    """Whether these are the states of one layer after another: more than two, of three axes, of one shape."""
    return len(value) > 2 and all(isinstance(v, Tensor) and v.dim() >= 3 and v.shape == value[0].shape for v in value)


def locate(tried: Tried, given: str | None) -> tuple[str, str] | None:
    """(path, why) of the tensor to judge: a sequence of states rather than a pooled vector, the first of its like."""
    if given is not None:
        path = given if given == "" or given[0] in ".[" else _as_path(tried.output, given)
        return path, "given"
    found = list(tensors_in(tried.output))
    if not found:
        return None
    best = max(range(len(found)), key=lambda i: (_score(found[i], tried), -i))
    why = "the only tensor" if len(found) == 1 else f"the likeliest of {len(found)} tensors"
    return found[best].path, why


def _as_path(output: Any, name: str) -> str:
    first = name.split(".")[0]
    if isinstance(output, Mapping) and not hasattr(output, first):
        return f"[{first!r}]" + name[len(first) :]
    return f".{name}"


def _score(found: Found, tried: Tried) -> float:
    names = re.findall(r"\.(\w+)|\['(\w+)'\]", found.path)
    name = "".join(names[-1]) if names else ""
    shape = list(found.tensor.shape)
    score = 3.0 * ("last_hidden" in name) + 2.0 * bool(_HIDDEN.search(name)) - 3.0 * bool(_OTHERS.search(name))
    score += 4.0 if len(shape) == 3 else 3.0 if len(shape) == 4 else 1.0 if len(shape) == 2 else -2.0
    if len(shape) >= 3 and shape[-1] == shape[-2] and shape[-1] in (tried.length, tried.length + 1):
        score -= 4.0  # an attention map
    if BATCH not in shape[:2]:
        score -= 3.0
    return score - 1.0 * found.from_layers - 0.5 * max(0, found.depth - 1)


def read_axes(bench: Bench, contract: CallContract, tried: Tried) -> CallContract:
    """Names the output's axes by running another batch size and another length."""
    first = pick(tried.output, contract.output)
    if not isinstance(first, Tensor):
        return replace(contract, notes=(*contract.notes, f"output{contract.output} is no tensor"))
    wider = bench.attempt(contract, tried.length, batch=2)
    batch_axis = _moved_axis(first, wider, contract)
    if batch_axis is None:
        batch_axis = next((i for i, n in enumerate(first.shape[:2]) if n == BATCH), 0)
        if not contract.batch_first and tried.length != BATCH and first.dim() > 2 and first.shape[1] == BATCH:
            batch_axis = 1
    longer = next((n for n in contract.lengths_tried[1:]), None)
    other = bench.attempt(contract, longer) if longer and contract.has_sequence else None
    sequence_axis = _moved_axis(first, other, contract) if other else None
    if sequence_axis == batch_axis:
        sequence_axis = None
    letters = _letters(first, batch_axis, sequence_axis, contract, tried)
    return replace(contract, output_axes=letters)


def positions(contract: CallContract, tried: Tried) -> int:
    """How many positions the output has."""
    if not tried.ran or "S" not in contract.output_axes:
        return 0
    return int(pick(tried.output, contract.output).shape[contract.output_axes.index("S")])


def _moved_axis(first: Tensor, other: Tried, contract: CallContract) -> int | None:
    if not other.ran:
        return None
    second = pick(other.output, contract.output)
    if not isinstance(second, Tensor) or second.dim() != first.dim():
        return None
    return next((i for i, (a, b) in enumerate(zip(first.shape, second.shape, strict=True)) if a != b), None)


def _letters(output: Tensor, batch: int, sequence: int | None, contract: CallContract, tried: Tried) -> str:
    rank = output.dim()
    spatial = len([a for a in contract.shape if a != "B"]) == 3 and "S" not in contract.shape
    if rank == 4 and spatial and batch == 0:
        return "BDHW"
    letters = [""] * rank
    letters[batch] = "B"
    if sequence is None and rank >= 3 and not contract.has_sequence:
        sequence = next(i for i in range(rank) if i != batch)  # patches or columns: a fixed number of positions
    if sequence is None and rank >= 2 and contract.has_sequence:
        sequence = next((i for i, n in enumerate(output.shape[:-1]) if i != batch and n == tried.length), None)
    if sequence is not None:
        letters[sequence] = "S"
    rest = [i for i in range(rank) if not letters[i]]
    for place, axis in enumerate(rest):
        letters[axis] = "D" if place == len(rest) - 1 else "LCK"[min(place, 2)]
    return "".join(letters)


def measure_offset(bench: Bench, contract: CallContract, length: int) -> int | None:
    """By how much output positions are shifted against input positions; None where they do not correspond."""
    if not contract.has_sequence or contract.pooled or contract.input is InputKind.AUDIO:
        return None
    if contract.mask is not None and not contract.mask.required and contract.mask.argument:
        contract = replace(contract, mask=None)  # positions correspond with or without it, and it may raise
    places = (length // 4, length // 2)
    shifts = [_strongest(bench, contract, length, place) for place in places]
    if None in shifts:
        return None
    size = shifts[0][1] if shifts[0] else 0
    found = {shift[0] - place for shift, place in zip(shifts, places, strict=True) if shift is not None}
    if size < length:
        return None
    if size == length:
        return 0
    return found.pop() if len(found) == 1 else None


def _strongest(bench: Bench, contract: CallContract, length: int, place: int) -> tuple[int, int] | None:
    """(output position that moves most when the input at `place` is replaced, number of output positions)."""
    base = bench.attempt(contract, length)
    moved = bench.attempt(contract, length, replaced=((0, place),))
    if not base.ran or not moved.ran:
        return None
    one, two = pick(base.output, contract.output), pick(moved.output, contract.output)
    change = (one.double() - two.double()).nan_to_num().abs()
    axis = contract.output_axes.index("S")
    others = [i for i in range(change.dim()) if i != axis]
    along = change.sum(dim=others)
    return int(along.argmax()), int(along.numel())
