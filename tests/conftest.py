"""What all tests share."""

from __future__ import annotations

import pytest
import torch


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=0, help="seed of the cases: verdicts must not depend on it")


def pytest_configure() -> None:
    torch.set_num_threads(1)  # on tensors this small, threads cost more than they give
