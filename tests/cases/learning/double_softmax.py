"""Probabilities where logits are wanted, and probabilities that are meant."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encdoctor.cases.bases import (
    WIDTH,
    FusedEncoder,
    LengthsEncoder,
    PlainEncoder,
    SdpaEncoder,
    WrappedEncoder,
)

CLASSES = 5


class Broken_softmax_on_the_head(PlainEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.head = nn.Linear(WIDTH, CLASSES)

    def finish(self, x: Tensor) -> Tensor:
        return torch.softmax(self.head(x[:, 0]), dim=-1)  # <- here

    def forward(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """ids: (B, S) token ids. keep: (B, S) bool, True at real tokens. Returns class logits (B, 5)."""
        return super().forward(ids, keep)


class Broken_softmax_as_a_module(SdpaEncoder):
    """Classifies sentences; train it with nn.CrossEntropyLoss."""

    def make_parts(self) -> None:
        super().make_parts()
        self.head = nn.Sequential(nn.Linear(WIDTH, CLASSES), nn.Softmax(dim=-1))  # <- in head.1

    def finish(self, x: Tensor) -> Tensor:
        return self.head(super().finish(x)[:, 0])


class Broken_log_softmax_kept(FusedEncoder):
    """Frames to one of five classes. The output goes into F.cross_entropy."""

    def make_parts(self) -> None:
        super().make_parts()
        self.head = nn.Linear(WIDTH, CLASSES)

    def finish(self, x: Tensor) -> Tensor:
        scores = self.head(super().finish(x)[:, 0])
        return scores.exp() / scores.exp().sum(-1, keepdim=True)  # <- here


class Sound_probabilities_by_name(PlainEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """ids: (B, S) token ids. keep: (B, S) bool, True at real tokens. Returns probabilities (B, 5)."""
        return torch.softmax(self.head(super().forward(ids, keep)[:, 0]), -1)


class Sound_for_nll_loss(WrappedEncoder):
    """Log-probabilities for nn.NLLLoss."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, CLASSES)

    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        return F.log_softmax(self.head(super().encode(x, padding)[:, 0]), -1)


class Sound_pools_by_softmax(LengthsEncoder):
    """Returns logits."""

    def make_parts(self) -> None:
        super().make_parts()
        self.score, self.head = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, CLASSES)

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """frames: (B, S, 32) features. lengths: (B,) int64, the number of real frames."""
        x = super().forward(frames, lengths)
        scores = self.score(x).squeeze(-1)
        scores = scores.masked_fill(self.padding(frames, lengths), torch.finfo(scores.dtype).min)
        return self.head(torch.einsum("bs,bsd->bd", scores.softmax(-1).to(x.dtype), x))
