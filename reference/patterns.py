"""Who attends to whom: everyone (dense), or neighbours only (local).

A pattern lays out queries, keys and values, runs the same kernel on them, and lays out the result. The
encoder builds it once; all layers use it.
"""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encdoctor.reference import masks

Kernel = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""Queries, keys, values, each (B, H, S, head_dim), and what to add to or hide of the scores → context."""


class Pattern(Protocol):
    def __call__(self, kernel: Kernel, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q, k, v: (B, S, H, head_dim) → context: (B, S, H, head_dim)."""


class Dense:
    """Every query may attend to every key that the mask leaves, with the bias on its score."""

    def __init__(self, mask: Tensor | None = None, bias: Tensor | None = None) -> None:
        """mask: True = may attend; bias: floating; both broadcast to (B, H, S, S)."""
        self.scores, self.sees_something = bias, None
        if mask is not None:
            mask, self.sees_something = masks.open_empty_rows(mask)
            self.scores = mask if bias is None else masks.additive(mask, bias)

    def __call__(self, kernel: Kernel, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))  # (B, H, S, head_dim)
        context = kernel(q, k, v, self.scores)
        if self.sees_something is not None:
            context = context.masked_fill(~self.sees_something, 0.0)
        return context.transpose(1, 2)


class Local:
    """A window of `radius` keys on either side, in memory that grows with S, not S².

    The sequence is cut into N blocks as long as the radius R. A block's queries can only reach their own
    block and the two beside it, so that the scores are (R, 3R) a block: 3 · R · S in all.
    """

    def __init__(
        self,
        radius: int,
        batch: int,
        length: int,
        device: torch.device,
        mask: Tensor | None = None,
        bias: nn.Module | None = None,
        causal: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """mask: (B, S), the keys that may be seen; bias: (Q, K) distances → (1, H, Q, K)."""
        self.radius, self.length = radius, length
        self.blocks = -(-length // radius)  # N, the last block filled up
        distance = masks.distances(radius, 3 * radius, device) - radius  # (R, 3R): keys start one block early
        reach = distance.abs() <= radius
        if causal:
            reach = reach & (distance <= 0)
        if mask is None:
            mask = torch.ones(1, length, dtype=torch.bool, device=device)
        keys = self.neighbours(mask.expand(batch, length)[..., None, None])  # (B · N, 3R, 1, 1)
        allowed = keys[:, None, None, :, 0, 0] & reach  # (B · N, 1, R, 3R)
        self.dense = Dense(allowed, None if bias is None else bias(distance).to(dtype))

    def own(self, t: Tensor) -> Tensor:
        """(B, S, H, head_dim) → (B · N, R, H, head_dim): each block's own positions."""
        fill = self.blocks * self.radius - self.length
        return F.pad(t, (0, 0, 0, 0, 0, fill)).view(-1, self.radius, *t.shape[2:])

    def neighbours(self, t: Tensor) -> Tensor:
        """(B, S, H, head_dim) → (B · N, 3R, H, head_dim): each block's own positions and those beside it."""
        fill = self.blocks * self.radius - self.length
        t = F.pad(t, (0, 0, 0, 0, self.radius, fill + self.radius))
        blocks = t.unfold(1, 3 * self.radius, self.radius)  # (B, N, H, head_dim, 3R)
        return blocks.movedim(-1, 2).flatten(0, 1)

    def __call__(self, kernel: Kernel, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        batch = q.shape[0]
        context = self.dense(kernel, self.own(q), self.neighbours(k), self.neighbours(v))
        return context.reshape(batch, -1, *q.shape[2:])[:, : self.length]
