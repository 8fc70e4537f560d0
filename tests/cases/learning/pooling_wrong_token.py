"""Sentence vectors read from padding on the left, and vectors that are read where they should be."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import WIDTH, FusedEncoder, PlainEncoder, SdpaEncoder, TorchEncoder, WrappedEncoder


class Broken_tokens_counted(WrappedEncoder):
    """Returns the state of the last token; padding on either side."""

    def embed(self, ids: Tensor) -> Tensor:
        places = (ids.ne(0).long().cumsum(1) - 1).clamp(min=0)
        return self.tokens(ids) + self.positions(places)

    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        last = (~padding).sum(1) - 1
        return super().encode(x, padding)[torch.arange(len(x), device=x.device), last]  # <- here


class Broken_first_of_the_left_padded(SdpaEncoder):
    """Sentence vectors for left-padded batches."""

    def embed(self, ids: Tensor) -> Tensor:
        return self.tokens(ids)

    def encode(self, x: Tensor, keep: Tensor | None) -> Tensor:
        places = torch.arange(x.shape[1], device=x.device) if keep is None else (keep.long().cumsum(1) - 1).clamp(min=0)
        return super().encode(x + self.positions(places), keep)[:, 0]  # <- here


class Broken_gathered_by_length(TorchEncoder):
    """Batches are padded on the left."""

    def embed(self, ids: Tensor) -> Tensor:
        return self.tokens(ids)

    def encode(self, x: Tensor, keep: Tensor | None) -> Tensor:
        keep = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if keep is None else keep
        places = (keep.long().cumsum(1) - 1).clamp(min=0)
        x = super().encode(x + self.positions(places), keep)
        last = (keep.sum(1) - 1)[:, None, None].expand(-1, 1, WIDTH)
        return x.gather(1, last).squeeze(1)  # <- here


class Sound_last_on_either_side(WrappedEncoder):
    """Returns the state of the last token; padding on either side."""

    def embed(self, ids: Tensor) -> Tensor:
        places = (ids.ne(0).long().cumsum(1) - 1).clamp(min=0)
        return self.tokens(ids) + self.positions(places)

    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        last = torch.where(padding, -1, torch.arange(x.shape[1], device=x.device)).argmax(1)
        return super().encode(x, padding)[torch.arange(len(x), device=x.device), last]


class Sound_first_token(PlainEncoder):
    def finish(self, x: Tensor) -> Tensor:
        return x[:, 0]


class Sound_own_token_in_front(FusedEncoder):
    """For left-padded frames."""

    def make_parts(self) -> None:
        super().make_parts()
        self.first = nn.Parameter(torch.randn(1, 1, WIDTH))

    def encode(self, x: Tensor, keep: Tensor | None) -> Tensor:
        x = torch.cat((self.first.expand(len(x), -1, -1), x), 1)
        if keep is not None:
            keep = torch.cat((torch.ones_like(keep[:, :1]), keep), 1)
        return super().encode(x, keep)[:, 0]
