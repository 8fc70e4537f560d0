"""Encoders that go wrong silently, or too early, on long input, and sound ones."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import LONGEST, VOCAB, WIDTH, FusedEncoder, PlainEncoder, SdpaEncoder, TorchEncoder


class Broken_clamped(TorchEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device).clamp(max=LONGEST - 1)
        return self.tokens(ids) + self.positions(places)  # <- here


class Broken_wrapped_around(SdpaEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device) % LONGEST
        return self.tokens(ids) + self.positions(places)  # <- here


class Broken_table_shorter_than_promised(PlainEncoder):
    def __init__(self, max_length: int = LONGEST + 16) -> None:
        super().__init__()
        self.max_length = max_length

    def embed(self, ids: Tensor) -> Tensor:
        if ids.shape[1] > self.max_length:
            raise ValueError(f"got {ids.shape[1]} tokens, at most {self.max_length}")
        return self.look_up(ids) + self.table[: ids.shape[1]]  # <- here


class Sound_refuses(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        if frames.shape[1] > LONGEST:
            raise ValueError(f"got {frames.shape[1]} frames, at most {LONGEST}")
        return super().embed(frames)


class Sound_offset_with_room(SdpaEncoder):
    """Positions are counted from 2, as in BART, and the table has two rows more."""

    def __init__(self, max_length: int = LONGEST) -> None:
        super().__init__()
        self.max_length = max_length
        self.positions = nn.Embedding(LONGEST + 2, WIDTH)
        self.tokens = nn.Embedding(VOCAB, WIDTH)

    def embed(self, ids: Tensor) -> Tensor:
        if ids.shape[1] > self.max_length:
            raise ValueError(f"got {ids.shape[1]} tokens, at most {self.max_length}")
        return self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device) + 2)
