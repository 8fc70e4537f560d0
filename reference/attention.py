"""Multi-head attention: softmax(QKᵀ / √head_dim) V, for H heads side by side (Vaswani et al. 2017, 3.2)."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encdoctor.reference.config import EncoderConfig
from encdoctor.reference.patterns import Dense, Pattern
from encdoctor.reference.positions import Rotation


def attention_weights(q: Tensor, k: Tensor, scores_mask: Tensor | None, scale: float) -> Tensor:
    """softmax(scale · QKᵀ + bias): (B, H, S, head_dim) queries and keys → (B, H, S, S) weights.

    ``scores_mask`` is boolean (True = may attend) or a floating bias, and hides no row entirely. The
    softmax is computed in float32 or better.
    """
    scores = q @ k.transpose(-2, -1) * scale  # (B, H, S, S)
    if scores_mask is not None and scores_mask.dtype == torch.bool:
        scores = scores.masked_fill(~scores_mask, float("-inf"))
    elif scores_mask is not None:
        scores = scores + scores_mask
    return scores.softmax(dim=-1, dtype=torch.promote_types(q.dtype, torch.float32)).to(q.dtype)


class Attention(nn.Module):
    """Projects x to queries, keys and values, attends, and projects the heads' contexts back.

    A query that may attend to nothing has a context of exactly zero, and no gradient passes through it.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.num_heads, self.head_dim = config.num_heads, config.width_per_head
        self.scale = config.attention_scale or 1 / math.sqrt(self.head_dim)
        self.dropout = config.attention_dropout
        self.explicit = config.attention == "explicit"
        inner = self.num_heads * self.head_dim
        self.fused = config.fused_qkv
        if self.fused:
            self.qkv = nn.Linear(config.d_model, 3 * inner, bias=config.bias)
        else:
            self.query = nn.Linear(config.d_model, inner, bias=config.bias)
            self.key = nn.Linear(config.d_model, inner, bias=config.bias)
            self.value = nn.Linear(config.d_model, inner, bias=config.bias)
        self.output = nn.Linear(inner, config.d_model, bias=config.bias)

    def project(self, x: Tensor, rotation: Rotation | None) -> tuple[Tensor, Tensor, Tensor]:
        """(B, S, D) → queries, keys, values, each (B, S, H, head_dim); queries and keys turned."""
        heads = (self.num_heads, self.head_dim)
        if self.fused:
            q, k, v = self.qkv(x).unflatten(-1, (3, *heads)).unbind(dim=-3)
        else:
            q, k, v = (layer(x).unflatten(-1, heads) for layer in (self.query, self.key, self.value))
        if rotation is not None:
            q, k = rotation(q), rotation(k)
        return q, k, v

    def kernel(self, q: Tensor, k: Tensor, v: Tensor, scores_mask: Tensor | None) -> Tensor:
        """(B, H, S, head_dim) each → context (B, H, S, head_dim)."""
        dropout = self.dropout if self.training else 0.0
        if scores_mask is not None and scores_mask.is_floating_point():
            scores_mask = scores_mask.to(q.dtype)  # autocast makes the projections half
        if self.explicit:
            return F.dropout(attention_weights(q, k, scores_mask, self.scale), dropout) @ v
        return F.scaled_dot_product_attention(q, k, v, scores_mask, dropout, scale=self.scale)

    def forward(self, x: Tensor, pattern: Pattern, rotation: Rotation | None = None) -> Tensor:
        """(B, S, D) → (B, S, D)."""
        context = pattern(self.kernel, *self.project(x, rotation))  # (B, S, H, head_dim)
        out: Tensor = self.output(context.flatten(-2))
        return out

    def weights(self, x: Tensor, pattern: Dense, rotation: Rotation | None = None) -> Tensor:
        """(B, S, D) → the (B, H, S, S) attention weights, without dropout; an empty row's are zero."""
        q, k, _ = self.project(x, rotation)
        weights = attention_weights(q.transpose(1, 2), k.transpose(1, 2), pattern.scores, self.scale)
        if pattern.sees_something is not None:
            weights = weights.masked_fill(~pattern.sees_something, 0.0)
        return weights
