"""What stands on an encoder: pooling, and the heads for a task.

Every model takes an encoder and passes its inputs on, so that ``mask`` is the encoder's (B, S)
``attention_mask``: True for each real token. None counts every position as real.
"""

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encdoctor.reference.encoder import Encoder, TokenEmbedding

Pooling = Literal["cls", "mean", "max"]
IGNORED = -100  # the label of positions without one, cross_entropy's own default


def pool(hidden: Tensor, mask: Tensor | None, how: Pooling) -> Tensor:
    """(B, S, D) hidden states → (B, D): the first position, or the mean or maximum of the real ones.

    A sample without any real token gives zero.
    """
    if how == "cls":
        return hidden[:, 0]
    if mask is None:
        mask = torch.ones(hidden.shape[:2], dtype=torch.bool, device=hidden.device)
    real = mask.bool()[..., None]  # (B, S, 1)
    if how == "mean":
        total = hidden.masked_fill(~real, 0.0).sum(dim=1)
        return total / real.sum(dim=1).clamp(min=1).to(hidden.dtype)
    largest = hidden.masked_fill(~real, float("-inf")).amax(dim=1)
    return largest.masked_fill(~real.any(dim=1), 0.0)


class SequenceClassifier(nn.Module):
    """One label for a sequence or an image: pool, then project."""

    def __init__(self, encoder: Encoder, num_classes: int, pooling: Pooling = "mean") -> None:
        super().__init__()
        if pooling not in get_args(Pooling):
            raise ValueError(f"pooling must be one of {', '.join(get_args(Pooling))}, not {pooling!r}")
        self.encoder, self.pooling = encoder, pooling
        self.dropout = nn.Dropout(encoder.config.dropout)
        self.output = nn.Linear(encoder.config.d_model, num_classes)

    def forward(self, inputs: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """(B, S) ids, or pixels where the encoder reads them → (B, classes) logits."""
        pooled = pool(self.encoder(inputs, attention_mask), attention_mask, self.pooling)
        logits: Tensor = self.output(self.dropout(pooled))
        return logits


class TokenClassifier(nn.Module):
    """One label for each token."""

    def __init__(self, encoder: Encoder, num_classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.dropout = nn.Dropout(encoder.config.dropout)
        self.output = nn.Linear(encoder.config.d_model, num_classes)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """(B, S) → (B, S, classes) logits."""
        logits: Tensor = self.output(self.dropout(self.encoder(input_ids, attention_mask)))
        return logits


class MaskedLanguageModel(nn.Module):
    """Predicts hidden tokens (Devlin et al. 2019, BERT); the output matrix is the token table itself."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.transform = nn.Linear(encoder.config.d_model, encoder.config.d_model)
        self.norm = nn.LayerNorm(encoder.config.d_model, eps=encoder.config.norm_eps)
        self.bias = nn.Parameter(torch.zeros(len(self.table)))

    @property
    def table(self) -> Tensor:
        """(V, D): the encoder's token table."""
        if not isinstance(self.encoder.embedding, TokenEmbedding):
            raise ValueError("a masked language model needs an encoder with a token table")
        return self.encoder.embedding.tokens.weight

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """(B, S) → (B, S, V) logits."""
        hidden = self.norm(F.gelu(self.transform(self.encoder(input_ids, attention_mask))))
        return F.linear(hidden, self.table, self.bias)


def hide_tokens(
    input_ids: Tensor,
    mask: Tensor,
    mask_id: int,
    vocab_size: int,
    rate: float = 0.15,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """BERT's corruption: (B, S) ids → (B, S) ids to read, and (B, S) labels.

    Of the real tokens, ``rate`` are to be predicted: 80 % of these read as ``mask_id``, 10 % as a random
    token, 10 % as they are. The other labels are ``IGNORED``.
    """

    def chance(probability: float) -> Tensor:
        drawn = torch.rand(input_ids.shape, generator=generator, device=input_ids.device)
        return drawn < probability

    chosen = mask.bool() & chance(rate)
    masked = chosen & chance(0.8)
    replaced = chosen & ~masked & chance(0.5)
    noise = torch.randint(vocab_size, input_ids.shape, generator=generator, device=input_ids.device)
    corrupted = input_ids.masked_fill(masked, mask_id).where(~replaced, noise)
    return corrupted, input_ids.masked_fill(~chosen, IGNORED)


class ContrastiveEncoder(nn.Module):
    """Maps a sequence to a point on the unit sphere (SimCLR, Chen et al. 2020; SimCSE, Gao et al. 2021)."""

    def __init__(self, encoder: Encoder, projection: int = 64, pooling: Pooling = "mean") -> None:
        super().__init__()
        self.encoder, self.pooling = encoder, pooling
        d_model = encoder.config.d_model
        self.project = nn.Sequential(nn.Linear(d_model, d_model), nn.ReLU(), nn.Linear(d_model, projection))

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """(B, S) → (B, projection), of length 1."""
        pooled = pool(self.encoder(input_ids, attention_mask), attention_mask, self.pooling)
        return F.normalize(self.project(pooled), dim=-1)


def contrastive_loss(first: Tensor, second: Tensor, temperature: float = 0.1) -> Tensor:
    """NT-Xent on two (B, P) views: each must find its own other view among the batch's 2B − 2 strangers."""
    views = torch.cat((first, second))  # (2B, P)
    similarity = (views @ views.T).float() / temperature
    similarity.fill_diagonal_(float("-inf"))
    partner = torch.arange(len(views), device=views.device).roll(len(first))
    return F.cross_entropy(similarity, partner)
