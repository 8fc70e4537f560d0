"""The encoder of mask_ignored.py, mended: line 22 keeps what `masked_fill` returns."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        batch, length, d_model = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(~keep[:, None, None, :], torch.finfo(scores.dtype).min)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, d_model))


class Layer(nn.Module):
    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.attention, self.attention_norm = Attention(d_model, heads), nn.LayerNorm(d_model)
        self.mlp_norm = nn.LayerNorm(d_model)
        self.mlp = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model))

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), keep)
        return x + self.mlp(self.mlp_norm(x))


class TextEncoder(nn.Module):
    """Token ids (B, S) and a mask (B, S), True for real tokens, to hidden states (B, S, D)."""

    def __init__(
        self, vocab: int = 1000, d_model: int = 64, heads: int = 4, layers: int = 2, longest: int = 128
    ) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, d_model), nn.Embedding(longest, d_model)
        self.layers = nn.ModuleList(Layer(d_model, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(d_model)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)
