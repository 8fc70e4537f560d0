"""Encoders for tokens that are padded on the left, counted wrongly and rightly."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import LONGEST, VOCAB, WIDTH, FusedEncoder, SdpaEncoder, WrappedEncoder


class Broken_counted_from_the_first_column(SdpaEncoder):
    """For a tokenizer that pads on the left: sentences are left-padded."""

    def embed(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.tokens(ids) + self.positions(places)  # <- here


class Broken_table_sliced(FusedEncoder):
    """Frames are left-padded."""

    def embed(self, frames: Tensor) -> Tensor:
        return self.stem(frames) + self.positions[: frames.shape[1]]  # <- here


class Broken_counted_backwards_from_the_width(SdpaEncoder):
    """For a tokenizer that pads on the left: sentences are left-padded."""

    def make_parts(self) -> None:
        super().make_parts()
        self.places = nn.Parameter(torch.randn(LONGEST, WIDTH))

    def embed(self, ids: Tensor) -> Tensor:
        return self.tokens(ids) + self.places[LONGEST - ids.shape[1] :].flip(0)  # <- here


class Sound_counted_over_tokens(WrappedEncoder):
    """Sentences are left-padded with id 0."""

    def embed(self, ids: Tensor) -> Tensor:
        places = ((ids != 0).long().cumsum(1) - 1).clamp(min=0)
        return self.tokens(ids) + self.positions(places)


class Sound_padded_on_the_right(SdpaEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.tokens = nn.Embedding(VOCAB, WIDTH)
