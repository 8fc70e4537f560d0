"""Ties that come apart while the model is built, and ties that hold."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import (
    VOCAB,
    WIDTH,
    FusedEncoder,
    PlainEncoder,
    SdpaEncoder,
    TorchEncoder,
)


class Broken_initialised_after_the_tie(PlainEncoder):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.tokens.weight
        self.start()

    def start(self) -> None:
        self.tokens.weight = nn.Parameter(torch.randn(VOCAB, WIDTH) * WIDTH**-0.5)  # <- here

    def finish(self, x: Tensor) -> Tensor:
        return self.head(x)


class Broken_table_replaced(SdpaEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.tokens.weight
        self.tokens = nn.Embedding(VOCAB, WIDTH, padding_idx=0)  # <- here

    def finish(self, x: Tensor) -> Tensor:
        return self.head(super().finish(x))


class Broken_copied_instead_of_shared(TorchEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.tokens.weight  # <- here
        self.apply(self.start)

    def start(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            module.weight = nn.Parameter(torch.empty_like(module.weight).normal_(std=0.02))

    def finish(self, x: Tensor) -> Tensor:
        return self.head(super().finish(x))


class Broken_same_memory_only(PlainEncoder):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight.data = self.tokens.weight.data  # <- here

    def finish(self, x: Tensor) -> Tensor:
        return self.head(x)


class Sound_tied_last(PlainEncoder):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.tokens.weight = nn.Parameter(torch.randn(VOCAB, WIDTH) * WIDTH**-0.5)
        self.head.weight = self.tokens.weight

    def finish(self, x: Tensor) -> Tensor:
        return self.head(x)


class Sound_initialised_in_place(SdpaEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=WIDTH**-0.5)

    def finish(self, x: Tensor) -> Tensor:
        return self.head(super().finish(x))


class Sound_started_equal_on_purpose(FusedEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.tail = nn.Linear(WIDTH, WIDTH)
        self.tail.weight.data.copy_(self.stem.weight.data)

    def finish(self, x: Tensor) -> Tensor:
        return self.tail(super().finish(x))


class Sound_untied_by_argument(TorchEncoder):
    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def finish(self, x: Tensor) -> Tensor:
        return self.head(super().finish(x))
