"""Encoders that fail on a batch or a sequence of one, and sound ones that refuse or get by."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import WIDTH, FusedEncoder, PlainEncoder, SdpaEncoder


class Broken_mask_squeezed(PlainEncoder):
    def forward(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """ids: (B, S) token ids. keep: (B, S) bool, True at real tokens."""
        if keep is not None:
            keep = keep.unsqueeze(1).squeeze()  # <- here
        return self.encode(self.embed(ids), keep)


class Broken_pooling_weights_squeezed(FusedEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.score = nn.Linear(WIDTH, 1)

    def forward(self, frames: Tensor) -> Tensor:
        """frames: (batch, time, 32) features. Returns (batch, 32)."""
        x = self.encode(self.embed(frames), None)
        weights = self.score(x).squeeze().softmax(-1)  # <- here
        return torch.bmm(weights[:, None], x)[:, 0]


class Broken_first_two_unpacked(SdpaEncoder):
    def finish(self, x: Tensor) -> Tensor:
        first, second = x[0], x[1]  # <- here
        return self.norm(torch.cat((first[None], second[None], x[2:])))


class Sound_says_how_many(SdpaEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        if ids.shape[1] < 2:
            raise ValueError(f"needs at least two tokens, got {ids.shape[1]}")
        return super().embed(ids)


class Sound_squeezes_its_axis(FusedEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.score = nn.Linear(WIDTH, 1)

    def forward(self, frames: Tensor) -> Tensor:
        """frames: (batch, time, 32) features. Returns (batch, 32)."""
        x = self.encode(self.embed(frames), None)
        weights = self.score(x).squeeze(-1).softmax(-1)
        return torch.bmm(weights[:, None], x).squeeze(1)
