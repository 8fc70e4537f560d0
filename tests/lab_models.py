"""Small encoders whose attention is written in every way that the trace must see, and a lab for any of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from encdoctor.intent import Intent
from encdoctor.lab.binding.bind import bind
from encdoctor.lab.lab import Lab
from encdoctor.target import origin_of

D, H, HEAD = 16, 2, 8


def lab_of(model: nn.Module) -> Lab:
    """A lab under the inferred contract."""
    origin = origin_of(model)
    return Lab(model, bind(model, origin, {}, "cpu"), Intent(), origin)


class Written(nn.Module):
    """One attention layer. ids (B, S); mask (B, S) bool, True at real tokens."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.place = nn.Embedding(40, D), nn.Embedding(64, D)
        self.q, self.k, self.v, self.out = (nn.Linear(D, D) for _ in range(4))
        self.norm = nn.LayerNorm(D)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.embed(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        if mask is None:
            mask = torch.ones_like(ids, dtype=torch.bool)
        q, k, v = (self.heads(project(x)) for project in (self.q, self.k, self.v))
        return self.norm(x + self.out(self.attend(q, k, v, mask)))

    def heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (H, HEAD)).transpose(1, 2)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = q @ k.transpose(-1, -2) / HEAD**0.5
        return self.merge(self.weights(scores, mask) @ v)

    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores.masked_fill(~mask[:, None, None, :], torch.finfo(scores.dtype).min).softmax(-1)

    def merge(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(2)


class Einsum(Written):
    """ids (B, S); mask (B, S) bool, True at real tokens."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * HEAD**-0.5
        return self.merge(torch.einsum("bhqk,bhkd->bhqd", self.weights(scores, mask), v))


class Additive(Written):
    """ids (B, S); mask (B, S) bool, True at real tokens."""

    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        bias = (1.0 - mask[:, None, None, :].to(scores.dtype)) * torch.finfo(scores.dtype).min
        return (scores + bias).softmax(-1)


class Where(Written):
    """ids (B, S); mask (B, S) bool, True at real tokens."""

    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask[:, None, None, :], scores, torch.finfo(scores.dtype).min).softmax(-1)


class InPlace(Written):
    """ids (B, S); mask (B, S) bool, True at real tokens."""

    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        scores.masked_fill_(~mask[:, None, None, :], -1e9)
        return scores.softmax(-1)


class WrittenOut(Written):
    """ids (B, S); mask (B, S) bool, True at real tokens."""

    def weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        hidden = scores.masked_fill(~mask[:, None, None, :], -1e9)
        above = (hidden - hidden.amax(-1, keepdim=True)).exp()
        return above / above.sum(-1, keepdim=True)


class Sdpa(Written):
    """ids (B, S); mask (B, S) bool, True at real tokens."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return self.merge(functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :]))


class Torch(Written):
    """ids (B, S); mask (B, S) bool, True at real tokens."""

    need_weights = False

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(D, H, batch_first=True)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.embed(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        padding = None if mask is None else ~mask
        mixed, _ = self.attention(x, x, x, key_padding_mask=padding, need_weights=self.need_weights)
        return self.norm(x + mixed)


class TorchWeights(Torch):
    """ids (B, S); mask (B, S) bool, True at real tokens."""

    need_weights = True


class TorchStack(Torch):
    """ids (B, S); mask (B, S) bool, True at real tokens."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(D, H, 32, batch_first=True)
        self.stack = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.embed(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        return self.stack(x, src_key_padding_mask=None if mask is None else ~mask)


STYLES: tuple[type[Written], ...] = (
    Written,
    Einsum,
    Additive,
    Where,
    InPlace,
    WrittenOut,
    Sdpa,
    Torch,
    TorchWeights,
    TorchStack,
)
