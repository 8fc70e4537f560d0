"""Makes the ordinary calls and keeps what they raise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from encdoctor.evidence.runs import ForwardRuns, Raised, Tried
from encdoctor.lab.gather.influence import padding_change
from encdoctor.lab.lab import Lab, NotMeasured
from encdoctor.lab.situations import Situation, describe


def gather_runs(lab: Lab) -> ForwardRuns:
    """In the model's own dtype, eval mode, no gradients."""
    return ForwardRuns(tuple(_try(lab, name, situation) for name, situation in _calls(lab)))


def _calls(lab: Lab) -> Iterator[tuple[str, Situation]]:
    dtype = lab.own_dtype
    mask = lab.contract.mask
    yield "padded", replace(lab.padded, dtype=dtype)
    yield "plain", replace(lab.full, dtype=dtype, masked=False)
    yield "strided", replace(lab.padded, dtype=dtype, contiguous=False)
    if mask is not None and lab.contract.has_sequence:
        yield "masked", replace(lab.full, dtype=dtype)
        square = Situation(lengths=(7, 5, 7, 4, 3, 7, 6), length=7, dtype=dtype)
        if lab.contract.max_length is None or lab.contract.max_length >= 7:
            yield "square", square


def _try(lab: Lab, name: str, situation: Situation) -> Tried:
    ran = lab.run(situation)
    if ran.output is None:
        return Tried(name, describe(situation), _with_operation(lab, ran.raised, situation))
    leak = 0.0
    if name == "square":
        try:
            leak = padding_change(lab, replace(situation, dtype=lab.dtype))
        except NotMeasured:
            leak = 0.0
    return Tried(name, describe(situation), None, tuple(ran.output.shape), leak)


def _with_operation(lab: Lab, raised: Raised | None, situation: Situation) -> Raised | None:
    """Adds the operation that refused and its shapes, from a recorded run."""
    failed = lab.trace(situation).failed
    if raised is None or failed is None:
        return raised
    return replace(raised, operation=failed[0], shapes=failed[1])
