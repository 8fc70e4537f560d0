"""Which axis is the batch: options and documentation first, then names in the source, then behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from encdoctor.contract import CallContract, InputKind
from encdoctor.lab.binding import words
from encdoctor.lab.binding.outputs import tensors_in
from encdoctor.lab.binding.trials import BATCH, Bench, Tried
from encdoctor.signatures import Reading


def settle_order(
    bench: Bench, reading: Reading, contract: CallContract, tried: Tried, given: Mapping[str, Any]
) -> CallContract:
    """The contract with the batch where it belongs, why, and a note where behaviour says otherwise."""
    if not contract.has_sequence or {"B", "S"} - set(contract.shape[:2]):
        return replace(contract, order_why="batch first")
    if given.get("batch_first") is not None:
        return _ordered(contract, bool(given["batch_first"]), "given", True)
    said = _written(bench.original, reading, contract)
    seen = _behaves(bench, contract, tried.length) if tried.ran else None
    if said is not None and said[2] and seen not in (None, said[0]):
        # which of the two is right is not the contract's to say: the batch mixed up may be the fault looked for
        note = f"{said[1]} says batch {'first' if said[0] else 'second'}, samples behave the other way round"
        contract = replace(contract, notes=(*contract.notes, note))
    if said is not None and (said[2] or seen is None or seen == said[0]):
        return _ordered(contract, said[0], said[1], said[2] or seen is not None)
    if seen is not None:
        return _ordered(contract, seen, "tried: which samples move together", True)
    return _ordered(contract, contract.batch_first, "nothing says otherwise", False)


def _ordered(contract: CallContract, batch_first: bool, why: str, certain: bool) -> CallContract:
    rest = contract.shape[2:]
    shape = ("B", "S", *rest) if batch_first else ("S", "B", *rest)
    return replace(contract, shape=shape, order_why=why, order_certain=certain)


def _written(model: nn.Module, reading: Reading, contract: CallContract) -> tuple[bool, str, bool] | None:
    """(batch first, where it is written, whether that settles it)."""
    alone = len([a for a in reading.arguments if a.required]) <= 1
    docs = list(reading.about(contract.pack or contract.argument))
    for doc in docs:
        for axes in words.shapes_in(doc.text)[:1]:
            if (order := words.batch_first_of(axes)) is not None:
                return order, doc.where, True
        if (order := words.order_in(doc.text)) is not None:
            return order, doc.where, True
    if not docs and alone:
        for doc in reading.docs:
            for axes in words.shapes_in(doc.text)[:1]:
                if (order := words.batch_first_of(axes)) is not None:
                    return order, doc.where, True
    for doc in reading.docs:
        if (order := words.order_in(doc.text)) is not None:
            return order, doc.where, True
    if (
        order := words.batch_first_of(tuple(n.lower() for n in reading.unpacked.get(contract.argument, ())))
    ) is not None:
        names = ", ".join(reading.unpacked[contract.argument])
        return order, f"unpacked as {names}", True
    if type(model).__module__.startswith("torch.nn"):
        flags = [f for m in model.modules() if isinstance(f := getattr(m, "batch_first", None), bool)]
        if flags:
            return flags[0], f"batch_first={flags[0]}", True
    own = getattr(model, "batch_first", None)
    if isinstance(own, bool):
        return own, f"batch_first={own}", True
    inner = [m.batch_first for m in model.modules() if isinstance(m, nn.MultiheadAttention)]
    turns = any(word in reading.source for word in ("transpose(", "permute(", "swapaxes(", ".mT", "rearrange("))
    if inner and not any(inner) and not turns and contract.input is not InputKind.IDS:
        return False, "batch_first=False inside and nothing transposed", False
    return None


def _behaves(bench: Bench, contract: CallContract, length: int) -> bool | None:
    """Whether samples along the first axis keep to themselves; None where both axes do or neither does."""
    bench.open_branches()
    confined = [_confined(bench, contract, length, axis) for axis in (0, 1)]
    if confined[0] == confined[1]:
        return None
    return confined[0]


def _confined(bench: Bench, contract: CallContract, length: int, axis: int) -> bool:
    """Whether other content at index 0 of an input axis moves the output at index 0 of one of its axes alone."""
    call = bench.call(contract, bench.situation(length))
    other = bench.call(contract, bench.situation(length, seed=1))
    changed = call.content.clone()
    changed.select(axis, 0).copy_(other.content.select(axis, 0))
    try:
        before = _first_tensor(bench.forward(call))
        _put(call, contract, changed)
        after = _first_tensor(bench.forward(call))
    except Exception:  # not measured: the documented order is kept
        return False
    if before is None or after is None or before.shape != after.shape:
        return False
    change = (before.double() - after.double()).nan_to_num().abs()
    for place, size in enumerate(change.shape):
        if size == call.content.shape[axis] and size in (BATCH, length):
            rest = change.narrow(place, 1, size - 1)
            if change.max() > 0 and rest.max() <= 1e-9 * change.max():
                return True
    return False


def _first_tensor(output: Any) -> Tensor | None:
    found = [f for f in tensors_in(output) if f.tensor.dim() >= 2]
    return max(found, key=lambda f: f.tensor.dim()).tensor if found else None


def _put(call: Any, contract: CallContract, content: Tensor) -> None:
    if contract.pack:
        call.args = ({**call.args[0], contract.argument: content},)
    elif contract.keyword:
        call.kwargs[contract.argument] = content
    else:
        call.args = (content, *call.args[1:])
