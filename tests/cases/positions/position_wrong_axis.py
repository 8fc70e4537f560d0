"""Encoders that count positions along the batch, and sound ones with tables of other shapes."""

from __future__ import annotations

import torch
from torch import Tensor

from encdoctor.cases.bases import (
    LONGEST,
    WIDTH,
    FusedEncoder,
    PlainEncoder,
    SdpaEncoder,
    SequenceFirstEncoder,
    WrappedEncoder,
    sinusoid,
)


class Broken_table_for_time_in_front(PlainEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.register_buffer("table", sinusoid(LONGEST, WIDTH)[:, None], persistent=False)

    def embed(self, ids: Tensor) -> Tensor:
        return self.look_up(ids) + self.table[: ids.shape[0]]  # <- here


class Broken_lookup_by_sample(SdpaEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[0], device=ids.device)
        return self.tokens(ids) + self.positions(places)[:, None]  # <- here


class Broken_count_along_the_first_axis(WrappedEncoder):
    def embed(self, ids: Tensor) -> Tensor:
        places = torch.ones_like(ids).cumsum(0) - 1
        return self.tokens(ids) + self.positions(places)  # <- here


class Broken_sequence_first_model_called_batch_first(FusedEncoder):
    def embed(self, frames: Tensor) -> Tensor:
        at = self.positions[: frames.shape[0]]
        return self.stem(frames) + at[:, None]  # <- here


class Sound_time_in_front(SequenceFirstEncoder):
    pass


class Sound_counted_from_ids(WrappedEncoder):
    """Positions are counted over real tokens."""

    def embed(self, ids: Tensor) -> Tensor:
        places = (ids != 0).long().cumsum(1)
        return self.tokens(ids) + self.positions(places)
