"""Small sound encoders, cut into small methods: a case overrides one of them, and that is the fault.

Shapes: B batch, S sequence, H heads, D width. Inside, masks are (B, S) bool, True at real tokens, or None;
each encoder converts its own convention once, at the border.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH, HEADS, LAYERS, VOCAB, LONGEST = 32, 4, 2, 50, 64
HEAD_DIM = WIDTH // HEADS


def sinusoid(length: int, width: int) -> Tensor:
    """The fixed table of Vaswani et al. 2017, section 3.5: (S, D)."""
    angles = torch.arange(length)[:, None] * 1e4 ** (-torch.arange(0, width, 2) / width)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)


# ---- attention -----------------------------------------------------------------------------------------


class ExplicitAttention(nn.Module):
    """Every step written out."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        q, k, v = self.project(x)
        scores = self.scores(q, k)
        if keep is not None:
            scores = self.mask_scores(scores, keep)
        return self.out(self.merge_heads(self.mix(self.weigh(scores, keep), v)))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.split_heads(self.query(x)), self.split_heads(self.key(x)), self.split_heads(self.value(x))

    def split_heads(self, x: Tensor) -> Tensor:
        """(B, S, D) → (B, H, S, D/H)."""
        return x.reshape(*x.shape[:2], HEADS, HEAD_DIM).transpose(1, 2)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.transpose(-2, -1) / math.sqrt(HEAD_DIM)

    def mask_scores(self, scores: Tensor, keep: Tensor) -> Tensor:
        return scores.masked_fill(~keep[:, None, None, :], torch.finfo(scores.dtype).min)

    def weigh(self, scores: Tensor, keep: Tensor | None) -> Tensor:
        return scores.softmax(-1)

    def mix(self, weights: Tensor, v: Tensor) -> Tensor:
        return weights @ v

    def merge_heads(self, x: Tensor) -> Tensor:
        """(B, H, S, D/H) → (B, S, D)."""
        return x.transpose(1, 2).flatten(2)


class FusedAttention(ExplicitAttention):
    """One projection for all three, contractions by einsum."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.split_heads(q), self.split_heads(k), self.split_heads(v)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.einsum("bhqd,bhkd->bhqk", q * HEAD_DIM**-0.5, k)

    def mix(self, weights: Tensor, v: Tensor) -> Tensor:
        return torch.einsum("bhqk,bhkd->bhqd", weights, v)


class SdpaAttention(FusedAttention):
    """Torch's fused kernel, told by a boolean mask which keys may be seen."""

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        q, k, v = self.project(x)
        mask = None if keep is None else self.attention_mask(keep)
        return self.out(self.merge_heads(self.attend(q, k, v, mask)))

    def attention_mask(self, keep: Tensor) -> Tensor:
        return keep[:, None, None, :]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class TorchAttention(nn.Module):
    """`nn.MultiheadAttention`, whose masks hide where True."""

    def __init__(self, batch_first: bool = True) -> None:
        super().__init__()
        self.heads = nn.MultiheadAttention(WIDTH, HEADS, batch_first=batch_first)

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        return self.attend(x, None if keep is None else ~keep)

    def attend(self, x: Tensor, padding: Tensor | None) -> Tensor:
        mixed, _ = self.heads(x, x, x, key_padding_mask=padding, need_weights=False)
        return mixed


class SequenceFirstAttention(TorchAttention):
    """The same for (S, B, D); the mask stays (B, S)."""

    def __init__(self) -> None:
        super().__init__(batch_first=False)


# ---- layers --------------------------------------------------------------------------------------------


class PostNormLayer(nn.Module):
    """Norms after the sums, as in the paper."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention
        self.feed = self.make_feed()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def make_feed(self) -> nn.Module:
        return nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        x = self.norm1(x + self.attention(x, keep))
        return self.norm2(x + self.feed(x))


class PreNormLayer(PostNormLayer):
    """Norms before the sublayers; the encoder ends with one."""

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        x = x + self.attention(self.norm1(x), keep)
        return x + self.feed(self.norm2(x))


# ---- encoders ------------------------------------------------------------------------------------------


class Stack(nn.Module):
    """Layers, and what stands before and behind them; subclasses say what comes in."""

    Attention: type[nn.Module] = ExplicitAttention
    Layer: type[PostNormLayer] = PostNormLayer

    def __init__(self) -> None:
        super().__init__()
        self.layers = self.make_layers()
        self.make_parts()

    def make_layers(self) -> nn.ModuleList:
        return nn.ModuleList([self.Layer(self.Attention()) for _ in range(LAYERS)])

    def make_parts(self) -> None:
        """Registers what the subclass needs besides the layers."""

    def encode(self, x: Tensor, keep: Tensor | None) -> Tensor:
        for layer in self.layers:
            x = layer(x, keep)
        return self.finish(x)

    def finish(self, x: Tensor) -> Tensor:
        return x


class PlainEncoder(Stack):
    """Token ids, explicit attention, post-norm, sinusoids."""

    table: Tensor

    def make_parts(self) -> None:
        self.tokens = self.make_tokens()
        self.register_buffer("table", sinusoid(LONGEST, WIDTH), persistent=False)

    def make_tokens(self) -> nn.Embedding:
        tokens = nn.Embedding(VOCAB, WIDTH)
        nn.init.normal_(tokens.weight, std=WIDTH**-0.5)
        return tokens

    def embed(self, ids: Tensor) -> Tensor:
        return self.look_up(ids) + self.table[: ids.shape[1]]

    def look_up(self, ids: Tensor) -> Tensor:
        return self.tokens(ids) * math.sqrt(WIDTH)

    def forward(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """ids: (B, S) token ids. keep: (B, S) bool, True at real tokens."""
        return self.encode(self.embed(ids), keep)


class Frames(Stack):
    """Feature frames, pre-norm, learned positions."""

    Layer: type[PostNormLayer] = PreNormLayer

    def make_parts(self) -> None:
        self.stem = nn.Linear(WIDTH, WIDTH)
        self.positions = nn.Parameter(0.02 * torch.randn(LONGEST, WIDTH))
        self.norm = nn.LayerNorm(WIDTH)

    def embed(self, frames: Tensor) -> Tensor:
        return self.stem(frames) + self.positions[: frames.shape[1]]

    def finish(self, x: Tensor) -> Tensor:
        return self.norm(x)


class FusedEncoder(Frames):
    """Feature frames, one projection for all three, einsum."""

    Attention: type[nn.Module] = FusedAttention

    def forward(self, frames: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        """frames: (B, S, 32) features. pad_mask: (B, S) bool, True at padding."""
        return self.encode(self.embed(frames), None if pad_mask is None else ~pad_mask)


class SdpaEncoder(Stack):
    """Token ids, torch's fused attention, pre-norm, learned positions."""

    Attention: type[nn.Module] = SdpaAttention
    Layer: type[PostNormLayer] = PreNormLayer

    def make_parts(self) -> None:
        self.tokens = nn.Embedding(VOCAB, WIDTH)
        self.positions = nn.Embedding(LONGEST, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def embed(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.tokens(ids) + self.positions(places)

    def finish(self, x: Tensor) -> Tensor:
        return self.norm(x)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """input_ids: (B, S). attention_mask: (B, S) int, 1 for tokens and 0 for padding."""
        return self.encode(self.embed(input_ids), None if attention_mask is None else attention_mask.bool())


class TorchEncoder(SdpaEncoder):
    """Token ids, `nn.MultiheadAttention`, post-norm, learned positions."""

    Attention: type[nn.Module] = TorchAttention
    Layer: type[PostNormLayer] = PostNormLayer

    def finish(self, x: Tensor) -> Tensor:
        return x

    def forward(self, ids: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """ids: (B, S) token ids. key_padding_mask: (B, S) bool, True at padding, as torch has it."""
        return self.encode(self.embed(ids), None if key_padding_mask is None else ~key_padding_mask)


class SequenceFirstEncoder(Frames):
    """Feature frames with time first, `nn.MultiheadAttention`, pre-norm."""

    Attention: type[nn.Module] = SequenceFirstAttention

    def embed(self, frames: Tensor) -> Tensor:
        return self.stem(frames) + self.positions[: frames.shape[0], None]

    def forward(self, frames: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        """frames: (S, B, 32) features, time first. pad_mask: (B, S) bool, True at padding."""
        return self.encode(self.embed(frames), None if pad_mask is None else ~pad_mask)


class WrappedEncoder(nn.Module):
    """`nn.TransformerEncoder` behind an embedding; id 0 is padding."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, WIDTH, padding_idx=0)
        self.positions = nn.Embedding(LONGEST, WIDTH)
        self.encoder = nn.TransformerEncoder(self.make_layer(), LAYERS, enable_nested_tensor=False)

    def make_layer(self) -> nn.TransformerEncoderLayer:
        return nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout=0.1, batch_first=True)

    def embed(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.tokens(ids) + self.positions(places)

    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.encoder(x, src_key_padding_mask=padding)

    def forward(self, ids: Tensor) -> Tensor:
        """ids: (B, S) token ids, padded with 0."""
        return self.encode(self.embed(ids), ids == 0)


class LengthsEncoder(Frames):
    """Feature frames and how many of them are real; fused attention of torch."""

    Attention: type[nn.Module] = SdpaAttention

    def padding(self, frames: Tensor, lengths: Tensor) -> Tensor:
        return torch.arange(frames.shape[1], device=frames.device) >= lengths[:, None]

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """frames: (B, S, 32) features. lengths: (B,) int64, the number of real frames."""
        return self.encode(self.embed(frames), ~self.padding(frames, lengths))
