"""The lab remembers, and leaves nothing behind."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest
import torch
from lab_models import Written, lab_of
from torch import Tensor
from torch.nn.modules import module as hooks

from encdoctor.evidence.gradients import Gradients
from encdoctor.evidence.learning import TinyFit
from encdoctor.evidence.numerics import HalfPrecision
from encdoctor.lab.conditions import untouched
from encdoctor.lab.custody import Custody
from encdoctor.lab.gatherers import GATHERERS
from encdoctor.lab.lab import NotMeasured
from encdoctor.lab.situations import PADDED


def _state() -> tuple[object, ...]:
    return (
        random.getstate(),
        np.random.get_state()[1].tolist(),  # type: ignore[index]
        torch.get_rng_state().tolist(),
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_anomaly_enabled(),
        torch.get_num_threads(),
        torch.backends.mha.get_fastpath_enabled(),
        torch.backends.cuda.flash_sdp_enabled(),
        dict(hooks._global_forward_hooks),
        dict(hooks._global_forward_pre_hooks),
    )


class Meddler(Written):
    """ids (B, S); mask (B, S) bool, True at real tokens."""

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        torch.set_grad_enabled(False)
        torch.use_deterministic_algorithms(True)
        torch.backends.mha.set_fastpath_enabled(False)
        return super().forward(ids, mask)


class Interrupted(Written):
    """ids (B, S); mask (B, S) bool, True at real tokens."""

    armed = False

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.armed:
            raise KeyboardInterrupt
        return super().forward(ids, mask)


@pytest.mark.parametrize("model", [Written, Meddler])
def test_gathering_everything_leaves_no_trace(model: type[Written]) -> None:
    instance = model()
    before = _state()
    with untouched():
        lab = lab_of(instance)
        for kind in GATHERERS:
            try:
                lab.get(kind)
            except NotMeasured:
                continue
    assert _state() == before
    assert instance.training
    assert all(p.grad is None and p.requires_grad for p in instance.parameters())


def test_an_interrupt_takes_the_hooks_along(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = lab_of(Interrupted())
    before = _state()
    monkeypatch.setattr(Interrupted, "armed", True)
    with pytest.raises(KeyboardInterrupt), untouched():
        lab.get(Gradients)
    assert _state() == before


def test_the_same_situation_runs_once() -> None:
    lab = lab_of(Written())
    lab.run(PADDED)
    lab.run(PADDED)
    assert lab.passes["forward"] == 1


def test_a_failed_gathering_is_not_tried_again() -> None:
    class Raises(Interrupted):
        """ids (B, S); mask (B, S) bool, True at real tokens."""

        def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
            if self.armed:
                raise ValueError("no")
            return super().forward(ids, mask)

    lab = lab_of(Raises())
    Raises.armed = True
    for _ in range(2):
        with pytest.raises(NotMeasured, match="ValueError: no"):
            lab.get(HalfPrecision)
    counted = lab.passes["forward"]
    with pytest.raises(NotMeasured):
        lab.get(HalfPrecision)
    assert lab.passes["forward"] == counted


class Uncopyable(Written):
    """ids (B, S); mask (B, S) bool, True at real tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


def test_a_model_that_cannot_be_copied_is_run_in_place_and_restored() -> None:
    model = Uncopyable()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    lab = lab_of(model)
    assert lab.get(TinyFit).measured
    assert lab.custody is not None
    lab.give_back()
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert model.training
    assert all(p.grad is None for p in model.parameters())


def test_custody_restores_modes_gradients_and_frozen_parts() -> None:
    model = Written()
    model.q.weight.requires_grad_(False)
    model.norm.eval()
    custody = Custody(model)
    model.double().train()
    model.q.weight.requires_grad_(True)
    model(torch.ones(2, 4, dtype=torch.long)).sum().backward()
    custody.restore()
    assert model.q.weight.dtype is torch.float32
    assert not model.q.weight.requires_grad
    assert not model.norm.training
    assert all(p.grad is None for p in model.parameters())
