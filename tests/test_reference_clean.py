"""The reference comes out clean in every variant."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch

from encdoctor import registry
from encdoctor.model import Severity
from encdoctor.options import Options
from encdoctor.reference import Encoder, EncoderConfig
from encdoctor.runner import examine
from encdoctor.target import Loaded, origin_of

CHECKS = registry.discover()
STYLES: tuple[dict[str, Any], ...] = (
    {"position": "sinusoidal", "norm_placement": "pre", "attention": "sdpa", "activation": "relu"},
    {"position": "sinusoidal", "norm_placement": "post", "attention": "explicit", "activation": "gelu"},
    {"position": "learned", "norm_placement": "post", "attention": "sdpa", "activation": "gelu"},
    {"position": "rotary", "norm_placement": "pre", "attention": "sdpa", "norm": "rmsnorm", "activation": "swiglu"},
    {"position": "alibi", "norm_placement": "pre", "attention": "explicit", "activation": "geglu"},
    {"position": "relative", "norm_placement": "pre", "attention": "explicit", "norm": "rmsnorm"},
    {"position": "none", "norm_placement": "post", "attention": "sdpa"},
)
EXTRAS: tuple[dict[str, Any], ...] = (
    {},
    {"causal": True},
    {"window": 3},
    {"share_layers": True},
    {"checkpointing": True},
    {"fused_qkv": False, "initialisation": "normal"},
)


@pytest.mark.parametrize(("style", "extra"), list(product(STYLES, EXTRAS)), ids=str)
def test_no_error_and_no_warning(style: dict[str, Any], extra: dict[str, Any]) -> None:
    config = EncoderConfig(
        vocab_size=60, d_model=32, num_heads=4, num_layers=2, d_ff=64, max_length=64, **style, **extra
    )

    def build() -> Encoder:
        return Encoder(config)

    torch.manual_seed(0)
    model = build()
    report = examine(Loaded("reference", model, origin_of(model), build), Options(fast=True), CHECKS)
    loud = [f"{f.slug}: {f.message}" for f in report.findings if f.severity is not Severity.NOTE]
    assert loud == []
