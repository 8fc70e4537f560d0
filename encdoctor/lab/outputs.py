"""Finds the tensor in what forward returned and brings its axes into one order."""

from __future__ import annotations

import re
from typing import Any

from torch import Tensor

_STEP = re.compile(r"\.(\w+)|\[(-?\d+)\]|\['([^']*)'\]")


def pick(value: Any, path: str) -> Tensor:
    """Follows `path` (".last_hidden_state", "[0]", "['hidden']", joined) into `value`.

    Raises KeyError, IndexError, AttributeError or TypeError where the path does not lead to a tensor.
    """
    for attribute, index, key in _STEP.findall(path):
        if isinstance(value, Tensor):
            raise TypeError(f"{path} goes on behind a tensor")
        value = getattr(value, attribute) if attribute else value[int(index) if index else key]
    if not isinstance(value, Tensor):
        raise TypeError(f"the output at {path or 'the top'} is a {type(value).__name__}, not a tensor")
    return value


def canonical(output: Tensor, axes: str) -> Tensor:
    """(B, S, F), or (B, 1, F) where there is no sequence axis: B first, S second, all other axes flattened.

    A tensor with another number of axes than the contract says is taken as batch first.
    """
    if output.dim() != len(axes) or "B" not in axes:
        return output.reshape(output.shape[0] if output.dim() else 1, 1, -1)
    rest = [i for i, letter in enumerate(axes) if letter not in "BS"]
    batch = axes.index("B")
    if "S" not in axes:
        return output.permute(batch, *rest).reshape(output.shape[batch], 1, -1)
    sequence = axes.index("S")
    moved = output.permute(batch, sequence, *rest)
    return moved.reshape(moved.shape[0], moved.shape[1], -1)
