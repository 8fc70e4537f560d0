"""One encoder layer: attention and a feed-forward network, each with a residual connection and a norm."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encdoctor.reference.attention import Attention
from encdoctor.reference.config import EncoderConfig
from encdoctor.reference.patterns import Dense, Pattern
from encdoctor.reference.positions import Rotation


def make_norm(config: EncoderConfig) -> nn.Module:
    """LayerNorm (Ba et al. 2016) or RMSNorm (Zhang and Sennrich 2019) over D."""
    if config.norm == "rmsnorm":
        return nn.RMSNorm(config.d_model, eps=config.norm_eps)
    return nn.LayerNorm(config.d_model, eps=config.norm_eps, bias=config.bias)


class FeedForward(nn.Module):
    """Two layers with an activation between; the gated ones multiply it by a second projection.

    ReLU: Vaswani et al. 2017, 3.3; GELU: Hendrycks and Gimpel 2016; SwiGLU, GeGLU: Shazeer 2020.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.activation, self.approximate = config.activation, config.gelu_approximate
        self.gated = config.activation in ("swiglu", "geglu")
        self.expand = nn.Linear(config.d_model, config.d_ff * (2 if self.gated else 1), bias=config.bias)
        self.contract = nn.Linear(config.d_ff, config.d_model, bias=config.bias)

    def activate(self, h: Tensor) -> Tensor:
        """The non-linearity; ReLU overwrites its input, which nobody else needs."""
        if self.activation == "relu":
            return F.relu(h, inplace=True)
        if self.activation == "swiglu":
            return F.silu(h)
        return F.gelu(h, approximate=self.approximate)

    def forward(self, x: Tensor) -> Tensor:
        """(B, S, D) → (B, S, D), a token at a time: all of them stand in one row, (B · S, D)."""
        h = self.expand(x.flatten(0, -2))  # (B · S, F), or (B · S, 2F): the gate's half first
        if self.gated:
            gate, value = h.chunk(2, dim=-1)
            h = self.activate(gate) * value
        else:
            h = self.activate(h)
        out: Tensor = self.contract(h)
        return out.view_as(x)


class DropPath(nn.Module):
    """Skips a sub-layer for whole samples at random (stochastic depth, Huang et al. 2016)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """(B, S, D) → the same, with zeros for the samples that skip and the rest scaled up to match."""
        if not self.training or self.rate == 0:
            return x
        kept = torch.rand(x.shape[0], 1, 1, device=x.device) >= self.rate
        return x * (kept / (1 - self.rate)).to(x.dtype)


class Block(nn.Module):
    """An encoder layer.

    Post-norm, as in the paper: x = norm(x + sublayer(x)). Pre-norm: x = x + sublayer(norm(x)), which
    leaves the residual path free, so that gradients reach the first layer unscaled (Xiong et al. 2020).
    """

    def __init__(self, config: EncoderConfig, drop_path: float = 0.0) -> None:
        super().__init__()
        self.pre_norm = config.norm_placement == "pre"
        self.attention = Attention(config)
        self.attention_norm = make_norm(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = make_norm(config)
        self.dropout = nn.Dropout(config.dropout)
        self.drop_path = DropPath(drop_path)

    def residual(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], norm: nn.Module) -> Tensor:
        """x and what the sub-layer makes of it, (B, S, D), with the norm before or after."""
        branch: Tensor = self.drop_path(self.dropout(sublayer(norm(x) if self.pre_norm else x)))
        x = x + branch
        return x if self.pre_norm else norm(x)

    def forward(self, x: Tensor, pattern: Pattern, rotation: Rotation | None = None) -> Tensor:
        """(B, S, D) → (B, S, D)."""
        x = self.residual(x, lambda y: self.attention(y, pattern, rotation), self.attention_norm)
        return self.residual(x, self.feed_forward, self.feed_forward_norm)

    def attention_weights(self, x: Tensor, pattern: Dense, rotation: Rotation | None = None) -> Tensor:
        """(B, S, D), the layer's input → its (B, H, S, S) attention weights."""
        return self.attention.weights(self.attention_norm(x) if self.pre_norm else x, pattern, rotation)
