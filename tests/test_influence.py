"""Influence is exactly zero where a sound model has none, and seen where there is some."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from lab_models import STYLES, D, Written, lab_of
from torch import Tensor, nn

from encdoctor.evidence.influence import InfluenceMatrix, PaddingInfluence, SampleMixing


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.__name__)
def test_padding_moves_a_sound_model_by_exactly_nothing(style: type[Written]) -> None:
    padding = lab_of(style()).get(PaddingInfluence)
    assert padding.measured
    assert padding.on_padding == 0.0
    assert padding.on_real > 1e-3


class Blind(Written):
    """ids (B, S); mask (B, S) bool, True at real tokens."""

    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores.softmax(-1)


class BlindToIds(nn.Module):
    """ids (B, S), 0 is padding."""

    def __init__(self, masked: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.masked = masked
        self.embed = nn.Embedding(40, D, padding_idx=0)
        self.layer = nn.TransformerEncoderLayer(D, 2, 32, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        return self.layer(self.embed(ids), src_key_padding_mask=ids.eq(0) if self.masked else None)


def test_a_leak_is_seen_in_both_dtypes() -> None:
    padding = lab_of(Blind()).get(PaddingInfluence)
    assert padding.leaks
    assert padding.on_padding == pytest.approx(padding.on_padding_own, rel=1e-3)


@pytest.mark.parametrize("masked", [True, False])
def test_where_padding_is_an_id_its_vector_is_what_is_replaced(masked: bool) -> None:
    padding = lab_of(BlindToIds(masked)).get(PaddingInfluence)
    assert padding.measured
    assert (padding.on_padding == 0.0) is masked


def test_columns_of_padding_are_blank_for_real_rows() -> None:
    matrix = lab_of(Written()).get(InfluenceMatrix)
    assert matrix.padded is not None
    assert matrix.full is not None
    real = matrix.real
    assert np.all(matrix.padded[:real, real:] == 0)
    assert np.all(matrix.padded[:real, :real] > 0)
    assert np.all(matrix.full > 0)


class Causal(Written):
    """ids (B, S); mask (B, S) bool, True at real tokens."""

    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return scores.masked_fill(later | ~mask[:, None, None, :], -1e9).softmax(-1)


def test_a_causal_model_has_an_empty_upper_triangle() -> None:
    future = lab_of(Causal()).get(InfluenceMatrix).future()
    assert future is not None
    assert future[0] == 0.0
    assert future[1] > 1e-3


class Mixing(Written):
    """ids (B, S); mask (B, S) bool, True at real tokens."""

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(ids, mask) + 0.1 * self.embed(ids).mean(0)


def test_samples_that_mix_are_seen_and_sound_ones_are_not() -> None:
    assert lab_of(Mixing()).get(SampleMixing).across > 1e-4
    assert lab_of(Written()).get(SampleMixing).across == 0.0
