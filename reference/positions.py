"""Where a token stands: added to the embeddings, turned into queries and keys, or added to the scores.

Every table and angle is computed where it is used, in float64 where the device has it and in float32
elsewhere, and only the result is rounded: `.half()` on a model cannot spoil it, and there is no built
length that a longer input could pass. Only the learned table has one, and says so.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from encdoctor.reference.config import EncoderConfig


def exact_dtype(device: torch.device) -> torch.dtype:
    """The most exact floating type of a device."""
    return torch.float32 if device.type == "mps" else torch.float64


def angles(length: int, width: int, device: torch.device) -> Tensor:
    """(S, width / 2) angles: position / 10000^(2i / width) (Vaswani et al. 2017, 3.5)."""
    dtype = exact_dtype(device)
    steps = torch.arange(0, width, 2, device=device, dtype=dtype)
    frequencies = torch.exp(steps * (-math.log(10000.0) / width))
    return torch.arange(length, device=device, dtype=dtype)[:, None] * frequencies


def sinusoidal(length: int, d_model: int, device: torch.device) -> Tensor:
    """(S, D) table: sine on the even and cosine on the odd dimensions (Vaswani et al. 2017, 3.5)."""
    angle = angles(length, d_model + d_model % 2, device)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)[:, :d_model]


class SinusoidalPosition(nn.Module):
    """Adds the sinusoidal table to (B, S, D)."""

    def forward(self, x: Tensor) -> Tensor:
        return x + sinusoidal(x.shape[1], x.shape[2], x.device).to(x.dtype)


class LearnedPosition(nn.Module):
    """Adds a learned table to (B, S, D); S is at most the table's length."""

    def __init__(self, max_length: int, d_model: int) -> None:
        super().__init__()
        self.table = nn.Embedding(max_length, d_model)

    def forward(self, x: Tensor) -> Tensor:
        length, longest = x.shape[1], self.table.num_embeddings
        if length > longest:
            raise ValueError(f"{length} positions, but the learned table has max_length = {longest}")
        return x + self.table.weight[:length]


class Rotation:
    """Rotary positions: pairs of dimensions turned by an angle that grows with the position.

    The score of two turned vectors depends on their distance alone (Su et al. 2021, RoFormer, 3.2). The
    pairs are neighbours, (0, 1), (2, 3), …, as in the paper.
    """

    def __init__(self, angle: Tensor, dtype: torch.dtype) -> None:
        """angle: (S, head_dim / 2); the turn is computed in ``dtype``, or in float32 where that is less."""
        self.angle = angle
        self.dtype = torch.promote_types(dtype, torch.float32)
        angle = angle[:, None]  # (S, 1, head_dim / 2): the same for all heads
        self.cos, self.sin = angle.cos().to(self.dtype), angle.sin().to(self.dtype)

    def __call__(self, x: Tensor) -> Tensor:
        """(…, S, H, head_dim) → the same, turned."""
        even, odd = x[..., 0::2].to(self.dtype), x[..., 1::2].to(self.dtype)  # (…, S, H, head_dim / 2)
        turned = torch.stack((even * self.cos - odd * self.sin, even * self.sin + odd * self.cos), dim=-1)
        return turned.flatten(-2).to(x.dtype)

    def packed(self, lengths: Sequence[int]) -> "Rotation":
        """The same for sequences laid end to end, each of which counts from zero."""
        return Rotation(torch.cat([self.angle[:n] for n in lengths]), self.dtype)


def alibi_slopes(num_heads: int, device: torch.device) -> Tensor:
    """(H,) slopes: 2^(−8h / H), for h = 1 … H (Press et al. 2022, 3).

    Where H is no power of two, the slopes of the next lower power come first, then every second slope
    of twice that power.
    """
    power = 2 ** (num_heads.bit_length() - 1)
    h = torch.arange(1, num_heads + 1, device=device, dtype=exact_dtype(device))
    between = 2 * (h - power) - 1  # 1, 3, 5, … beyond the power of two
    return torch.exp2(torch.where(h <= power, -8 * h / power, -4 * between / power))


class AlibiBias(nn.Module):
    """Score bias −slope · |j − i|: the further a key, the less it counts, alike on both sides.

    Without a causal mask it tells distances but not directions: a mirrored input gives a mirrored output.
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def forward(self, distance: Tensor) -> Tensor:
        """(Q, K) distances → (1, H, Q, K) bias."""
        slopes = alibi_slopes(self.num_heads, distance.device)
        return -slopes[:, None, None] * distance.abs()[None, None]


class RelativeBias(nn.Module):
    """A learned score bias for each head and bucket of distances (Raffel et al. 2020, T5, 2.1).

    Half of a direction's buckets hold one distance each; the others grow logarithmically up to
    ``max_distance``, and the last one holds all that lies beyond.
    """

    def __init__(self, num_heads: int, buckets: int, max_distance: int, both_directions: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(buckets, num_heads)
        self.max_distance = max_distance
        self.both_directions = both_directions

    def bucket(self, distance: Tensor) -> Tensor:
        """(Q, K) distances j − i → (Q, K) bucket numbers."""
        buckets = self.table.num_embeddings
        first = torch.zeros_like(distance)
        if self.both_directions:
            buckets //= 2
            first = (distance > 0) * buckets  # keys to the right have the upper half
            distance = distance.abs()
        else:
            distance = (-distance).clamp(min=0)
        exact = buckets // 2
        # in float32 and in this order, as T5 was trained: a distance on an edge falls on the same side
        octaves = torch.log(distance.clamp(min=1).float() / exact) / math.log(self.max_distance / exact)
        beyond = exact + (octaves * (buckets - exact)).long()
        return first + torch.where(distance < exact, distance, beyond.clamp(max=buckets - 1))

    def forward(self, distance: Tensor) -> Tensor:
        """(Q, K) distances → (1, H, Q, K) bias."""
        bias: Tensor = self.table(self.bucket(distance))  # (Q, K, H)
        return bias.permute(2, 0, 1)[None]


def input_position(config: EncoderConfig) -> nn.Module | None:
    """The module that adds positions to the embeddings, if the config asks for one."""
    if config.position == "sinusoidal":
        return SinusoidalPosition()
    if config.position == "learned":
        return LearnedPosition(config.max_length, config.d_model)
    return None


def score_bias(config: EncoderConfig) -> AlibiBias | RelativeBias | None:
    """The module that turns distances into a bias on the scores, if the config asks for one."""
    if config.position == "alibi":
        return AlibiBias(config.num_heads)
    if config.position == "relative":
        return RelativeBias(config.num_heads, config.relative_buckets, config.relative_max_distance, not config.causal)
    return None
