"""Circumstances that hold while the user's code runs, and are put back whatever happens."""

from __future__ import annotations

import contextlib
import random
import warnings
from collections.abc import Iterator

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


@contextlib.contextmanager
def untouched() -> Iterator[None]:
    """Puts back random states and global switches, whatever happens inside."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    torch_state, grad, dtype = torch.get_rng_state(), torch.is_grad_enabled(), torch.get_default_dtype()
    deterministic = torch.are_deterministic_algorithms_enabled()
    anomaly, threads = torch.is_anomaly_enabled(), torch.get_num_threads()
    fast_path = torch.backends.mha.get_fastpath_enabled()
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        torch.set_rng_state(torch_state)
        torch.set_grad_enabled(grad)
        torch.set_default_dtype(dtype)
        torch.use_deterministic_algorithms(deterministic)
        torch.autograd.set_detect_anomaly(anomaly)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        torch.backends.mha.set_fastpath_enabled(fast_path)


@contextlib.contextmanager
def slow_attention() -> Iterator[None]:
    """Attention as plain operations: no nested-tensor or fused path."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings that the user's code raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
