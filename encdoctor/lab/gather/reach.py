"""Calls the encoder with its longest lengths, and stops where positions are added."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from encdoctor.evidence.positions import PositionPart, PositionReach, Reach
from encdoctor.lab.binding.lengths import LIMIT_NAMES
from encdoctor.lab.gather.edges import is_deliberate
from encdoctor.lab.lab import Lab, Treatment
from encdoctor.lab.trace import Operation
from encdoctor.signatures import as_mapping, config_objects

# Beyond this, even looking tokens up is dear.
LONGEST = 20_000


class _Reached(Exception):
    """Positions were about to be added: the rest of the forward is not needed."""


def gather_reach(lab: Lab) -> PositionReach:
    """One more than the table has rows, and what the model declares."""
    part = lab.get(PositionPart)
    if not part.found or not part.rows:
        return PositionReach(False, part.why or "positions do not come from a table")
    if lab.contract.settings.get("length") or part.rows > LONGEST:
        why = "only one length runs" if part.rows <= LONGEST else "the table is too long to be tried"
        return PositionReach(False, why)
    declared = max(_declared(lab, part.rows), default=None)
    return PositionReach(
        True,
        rows=part.rows,
        beyond=_reach(lab, part, part.rows + 1),
        declared=_reach(lab, part, declared[0]) if declared else None,
        declared_by=declared[1] if declared else "",
        collision=_collision(part),
    )


def _declared(lab: Lab, rows: int) -> Iterator[tuple[int, str]]:
    """Longest lengths that attributes and configurations of the model name."""
    for holder in (lab.model, *config_objects(lab.model)):
        for name, value in as_mapping(holder).items():
            if not isinstance(name, str) or not isinstance(value, int) or isinstance(value, bool):
                continue
            # much longer is the length of something else
            if LIMIT_NAMES.search(name.lower()) and 2 <= value <= min(LONGEST, 4 * rows):
                yield value, f"{name}={value}"


def _reach(lab: Lab, part: PositionPart, length: int) -> Reach:
    caught: list[Tensor] = []

    def stop(op: Operation) -> Tensor:
        caught.extend(a for a in op.args if isinstance(a, Tensor))
        raise _Reached

    situation = replace(lab.full, lengths=(length, length), length=length, dtype=lab.dtype)
    ran = lab.under(Treatment(edits={part.key: stop})).run(situation)
    rows = next((r for t in caught if (r := _position_rows(t)) is not None), None)
    if caught:
        return Reach(length, positions=0 if rows is None else len(rows), repeats=_repeats(rows))
    if ran.raised is None:
        return Reach(length, positions=length)
    return Reach(length, ran.raised.text, is_deliberate(ran.raised), ran.raised.places)


def _position_rows(tensor: Tensor) -> Tensor | None:
    """(S, D) of the operand that is the same for both samples."""
    if tensor.dim() < 2 or not tensor.is_floating_point():
        return None
    while tensor.dim() > 2:
        axis = next((a for a in (0, 1) if tensor.shape[a] in (1, 2)), None)
        if axis is None or (tensor.shape[axis] == 2 and not torch.equal(*tensor.unbind(axis))):
            return None
        tensor = tensor.select(axis, 0)
    return tensor


def _repeats(rows: Tensor | None) -> int | None:
    if rows is None or len(rows) < 2 or not bool(rows[-1].any()):
        return None
    same = (rows[:-1] == rows[-1]).all(-1).nonzero().flatten().tolist()
    return int(same[-1]) if same else None


def _collision(part: PositionPart) -> tuple[int, int] | None:
    """Two positions of an ordinary batch that look up one row."""
    seen: dict[int, int] = {}
    for position, row in enumerate(part.index or ()):
        if row in seen:
            return seen[row], position
        seen[row] = position
    return None
