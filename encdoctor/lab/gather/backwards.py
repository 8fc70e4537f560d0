"""Backward where it is known to break: zeros at padding, train mode with checkpointing, in-place writes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

import torch
from torch import nn

from encdoctor.evidence.gradients import Backwards
from encdoctor.lab.batches import along, make_call
from encdoctor.lab.cuts import FlowRecorder, first_bad_gradient
from encdoctor.lab.gather.gradients import projection_loss
from encdoctor.lab.gather.influence import real_outputs
from encdoctor.lab.lab import Lab, NotMeasured
from encdoctor.lab.outputs import pick
from encdoctor.lab.situations import Situation
from encdoctor.lab.trace import ModulePath, find_place
from encdoctor.model import Place


def gather_backwards(lab: Lab) -> Backwards:
    """One backward in eval mode with zeros at padding, one in train mode."""
    situation = replace(lab.padded, dtype=lab.own_dtype, grad=True)
    model = lab.fresh()
    raised, recorder = _run(lab, model, situation)
    if raised:
        return Backwards(raised=raised, written_at=_in_place(lab, situation, raised))
    bad = [name for name, p in model.named_parameters() if p.grad is not None and not _finite(p.grad)]
    content = recorder.content
    if content.grad is not None and not _finite(content.grad):
        bad.append("the input")
    step = first_bad_gradient(recorder.flow) if bad else None
    got = {name for name, p in model.named_parameters() if p.grad is not None and bool(p.grad.any())}
    lost, recomputed = _lost_in_train(lab, situation, got)
    return Backwards(
        bad=tuple(bad),
        bad_call=step.name if step else "",
        bad_place=step.place if step else Place(),
        lost_in_train=lost,
        recomputed_at=recomputed,
    )


def _run(lab: Lab, model: nn.Module, situation: Situation) -> tuple[str, FlowRecorder]:
    """What backward raised, and the recorded flow. Padding is zeros, and a float input wants a gradient."""
    call = make_call(lab.contract, situation, lab.device)
    if call.content.is_floating_point():
        _zero_padding(lab, call.content, call.keep)
        call.content.requires_grad_(True)
    recorders: list[FlowRecorder] = []

    def recording(path: ModulePath, _: Any) -> FlowRecorder:
        recorders.append(FlowRecorder(lab.origin, path, call.content))
        return recorders[0]

    with torch.enable_grad():
        ran = lab.forward(model, situation, call, inside=recording)
        output, recorder = ran.tensor, recorders[0]
        if not _finite(output[real_outputs(lab, output, situation)]):
            return "", recorder  # what forward spoils is not backward's fault
        recorder.finish(pick(ran.raw, lab.contract.output))
        if not output.requires_grad:
            return "", recorder
        try:
            lab.backward(projection_loss(lab, output, situation))
        except NotMeasured as reason:
            return str(reason), recorder
    return "", recorder


def _zero_padding(lab: Lab, content: torch.Tensor, keep: torch.Tensor) -> None:
    if not lab.contract.has_sequence:
        return
    with torch.no_grad():
        content.mul_(along(lab.contract, keep, content).to(content.dtype))


def _finite(tensor: torch.Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())


# ---- train mode ------------------------------------------------------------------------------------------------


def _lost_in_train(lab: Lab, situation: Situation, got: set[str]) -> tuple[tuple[str, ...], tuple[Place, ...]]:
    """Parameters that have a gradient in eval mode only, where something is recomputed in backward."""
    model = lab.fresh()
    with _checkpoint_calls(lab) as places, torch.enable_grad():
        # the input is data here, as in training, and wants no gradient
        train = replace(situation, training=True)
        ran = lab.forward(model, train)
        if ran.output is None or not ran.output.requires_grad:
            return (), ()
        try:
            lab.backward(projection_loss(lab, ran.output, train))
        except NotMeasured:
            return (), ()
    if not places:
        return (), ()
    lost = [n for n, p in model.named_parameters() if n in got and (p.grad is None or not bool(p.grad.any()))]
    return tuple(lost), tuple(dict.fromkeys(places))


@contextmanager
def _checkpoint_calls(lab: Lab) -> Iterator[list[Place]]:
    """Collects the lines that call torch's checkpoint: however it was imported, its frame is seen."""
    places: list[Place] = []

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name == "checkpoint" and frame.f_globals.get("__name__") == CHECKPOINT:
            places.append(find_place(lab.origin, "", frame.f_back))

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield places
    finally:
        sys.setprofile(before)


CHECKPOINT = "torch.utils.checkpoint"


# ---- in-place writes -------------------------------------------------------------------------------------------


def _in_place(lab: Lab, situation: Situation, raised: str) -> tuple[Place, ...]:
    """Writes into memory that an earlier operation had read, in the target's own lines, the latest first.

    Those into a tensor of the shape that the exception names come before the others.
    """
    trace = lab.trace(replace(situation, grad=False))
    said = re.search(r"\[\w[\w.]* \[([\d, ]*)\]\]", raised)
    shape = tuple(int(n) for n in said[1].split(",") if n.strip()) if said else ()
    read: dict[int, tuple[int, ...]] = {}
    likely: list[Place] = []
    others: list[Place] = []
    for node in trace.nodes:
        refs = node.refs
        written = refs[0].tensor.untyped_storage().data_ptr() if refs and _writes(node.op) else None
        if written in read and node.place.own:
            (likely if read[written] == shape else others).append(node.place)
        for ref in refs:
            read.setdefault(ref.tensor.untyped_storage().data_ptr(), tuple(ref.tensor.shape))
    return tuple(dict.fromkeys([*reversed(likely), *reversed(others)]))


def _writes(op: str) -> bool:
    return op.endswith("_") and not op.startswith("_")
