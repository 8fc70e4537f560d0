"""The trace sees attention however it is written, reads its masks, and can change what it saw."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from lab_models import HEAD, STYLES, H, Written, lab_of
from torch import Tensor

from encdoctor.evidence.attention import AttentionSites, Covers
from encdoctor.lab.repair.intervene import treatment
from encdoctor.lab.situations import FULL, PADDED
from encdoctor.model import Trial


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.__name__)
def test_one_site_is_found_in_every_style(style: type[Written]) -> None:
    sites = lab_of(style()).get(AttentionSites)
    assert sites.understood
    assert len(sites.sites) == 1
    site = sites.sites[0]
    assert (site.heads, site.queries, site.keys) == (H, 13, 13)
    assert site.hides_padding()
    assert site.on_padding == 0.0


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.__name__)
def test_the_scale_is_read_off_the_operations(style: type[Written]) -> None:
    site = lab_of(style()).get(AttentionSites).sites[0]
    assert site.head_dim == HEAD
    assert site.scale == pytest.approx(HEAD**-0.5, rel=1e-6)


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.__name__)
def test_places_are_lines_of_the_encoder(style: type[Written]) -> None:
    site = lab_of(style()).get(AttentionSites).sites[0]
    assert site.place.file == __file__.replace("test_trace", "lab_models")
    assert site.place.own


def test_only_torchs_own_attention_is_foreign() -> None:
    foreign = {style.__name__ for style in STYLES if lab_of(style()).get(AttentionSites).sites[0].foreign}
    assert foreign == {"Torch", "TorchWeights", "TorchStack"}


class Hides(Written):
    """ids (B, S); mask (B, S) bool, True at real tokens."""

    pattern = "keys"

    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        ones = torch.ones(scores.shape[-2:], dtype=torch.bool)
        hidden = {
            "keys": ~mask[:, None, None, :],
            "inverted": mask[:, None, None, :],
            "rows": ~mask[:, None, :, None],
            "other": ~mask.roll(1, 0)[:, None, None, :],
            "causal": ones.triu(1),
            "shifted": ones.triu(2),
            "past": ones.tril(-1),
            "diagonal": torch.eye(len(ones), dtype=torch.bool),
            "band": ones.triu(3) | ones.tril(-3),
            "causal and keys": ones.triu(1) | ~mask[:, None, None, :],
        }[self.pattern]
        return scores.masked_fill(hidden, -1e9).softmax(-1)


@pytest.mark.parametrize(
    ("pattern", "covers", "offset"),
    [
        ("keys", Covers.PADDED_KEYS, 0),
        ("inverted", Covers.REAL_KEYS, 0),
        ("rows", Covers.PADDED_ROWS, 0),
        ("other", Covers.OTHER_SAMPLE, 0),
        ("causal", Covers.FUTURE, 1),
        ("shifted", Covers.FUTURE, 2),
        ("past", Covers.PAST, -1),
        ("diagonal", Covers.DIAGONAL, 0),
        ("band", Covers.BAND, 2),
        ("causal and keys", Covers.FUTURE, 1),
    ],
)
def test_a_masks_pattern_is_named(
    pattern: str, covers: Covers, offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hides, "pattern", pattern)
    mask = lab_of(Hides()).get(AttentionSites).sites[0].masks[0]
    assert (mask.covers, mask.offset) == (covers, offset)
    assert mask.fill == -1e9


def test_keys_are_the_same_in_runs_of_other_contents_and_lengths() -> None:
    lab = lab_of(Written())
    first = [node.key for node in lab.trace(PADDED).nodes]
    second = [node.key for node in lab.trace(replace(FULL, seed=4)).nodes]
    assert first == second
    assert len(set(first)) == len(first)


def test_an_edit_by_key_changes_a_later_run_only_under_the_treatment() -> None:
    lab = lab_of(Written())
    key = lab.get(AttentionSites).sites[0].key
    plain = lab.run(PADDED).tensor
    treated = lab.under(treatment(lab, Trial("scale", (key,), 0.0))).run(PADDED).tensor
    assert not torch.equal(plain, treated)
    again = lab_of(Written()).run(PADDED).tensor
    assert torch.equal(plain, again)


def test_a_module_in_a_plain_list_is_seen_as_unregistered() -> None:
    model = Written()
    hidden = model.q
    del model.q
    object.__setattr__(model, "q", hidden)
    lab = lab_of(model)
    found = lab.trace(lab.padded).unregistered
    assert [owner for _, owner, _ in found] == [""]
    assert type(found[0][0]).__name__ == "Linear"
