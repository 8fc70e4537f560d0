"""Runs the padded batch in half precision, and a batch with an empty row."""

from __future__ import annotations

from dataclasses import replace

import torch

from encdoctor.contract import MaskMeaning
from encdoctor.evidence.numerics import EmptyRow, HalfPrecision, HalfRun
from encdoctor.lab.gather.gradients import projection_loss
from encdoctor.lab.gather.influence import real_outputs, relative_change
from encdoctor.lab.lab import Lab
from encdoctor.lab.nonfinite import first_bad
from encdoctor.lab.situations import EMPTY_ROW, Situation
from encdoctor.lab.trace import Trace
from encdoctor.lab.widening import DTYPES_CLASH, widened_at


def gather_half(lab: Lab) -> HalfPrecision:
    """float16 and bfloat16 models, and autocast as it is used in training."""
    exact = lab.run(replace(lab.padded, dtype="float32"))
    finite32 = _bad_share(lab, exact.tensor, lab.padded) == 0
    runs = []
    for how, dtype, autocast in (
        ("float16", "float16", ""),
        ("bfloat16", "bfloat16", ""),
        ("autocast float16", "float32", "float16"),
        ("autocast bfloat16", "float32", "bfloat16"),
    ):
        situation = replace(lab.padded, dtype=dtype, autocast=autocast)
        ran = lab.run(situation)
        bad, error, first = 0.0, 0.0, None
        clash = ran.raised is not None and DTYPES_CLASH.search(ran.raised.text) is not None
        if ran.output is not None:
            bad = _bad_share(lab, ran.output, situation)
            if exact.output is not None and exact.output.shape == ran.output.shape:
                error = relative_change(exact.output, ran.output.float(), real_outputs(lab, ran.output, situation))
            if bad and finite32:
                first = first_bad(lab, lab.trace(situation), lab.copy_of(dtype))
        widened, hidden = widened_at(lab, lab.trace(situation), lab.copy_of(dtype)) if clash else ((), False)
        fused = clash and lab.run(replace(situation, fast_path=False)).raised is None
        runs.append(HalfRun(how, autocast or dtype, ran.raised, bad, error, first, clash, widened, hidden, fused))
    return HalfPrecision(tuple(runs), finite32)


def _bad_share(lab: Lab, output: torch.Tensor, situation: Situation) -> float:
    real = real_outputs(lab, output, situation)
    bad = ~torch.isfinite(output).all(-1) & real
    return float(bad.sum() / real.sum().clamp(min=1))


def gather_empty_row(lab: Lab) -> EmptyRow:
    """One sample of nothing but padding, in eval without gradients and with them."""
    mask = lab.contract.mask
    if mask is None:
        return EmptyRow(False, "the encoder is not told what is padding")
    if not lab.contract.has_sequence:
        return EmptyRow(False, "the input has no sequence axis")
    situation = lab.fit(replace(EMPTY_ROW, dtype=lab.own_dtype))
    ran = lab.run(situation)
    if ran.output is None:
        kind = "lengths of 0" if mask.true is MaskMeaning.LENGTHS else "a fully padded sample"
        return EmptyRow(False, f"{kind}: {ran.raised.summary if ran.raised else ''}", raised=ran.raised)
    fine = torch.isfinite(ran.output).flatten(1).all(1)
    own, others = not bool(fine[1]), not bool(fine[[0, 2]].all())
    bad, total = _bad_gradients(lab, situation)
    first = None
    if own or others or bad:
        trace: Trace = lab.trace(replace(situation, grad=False))
        first = first_bad(lab, trace, lab.copy_of(situation.dtype))
    return EmptyRow(True, "", own, others, bad, total, first)


def _bad_gradients(lab: Lab, situation: Situation) -> tuple[tuple[str, ...], int]:
    model = lab.fresh()
    with torch.enable_grad():
        ran = lab.forward(model, replace(situation, grad=True))
        if ran.output is None or not ran.output.requires_grad:
            return (), 0
        # rows of the empty sample are not real, so the loss never reads them; a pooled vector of it is left out
        output = ran.output[[0, 2]]
        kept = replace(situation, lengths=(situation.lengths[0], situation.lengths[2]))
        lab.backward(projection_loss(lab, output, kept))
    named = [(n, p.grad) for n, p in model.named_parameters() if p.grad is not None]
    return tuple(n for n, g in named if not bool(torch.isfinite(g).all())), len(named)


