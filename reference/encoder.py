"""The encoder: embeddings with positions, a stack of layers, and a last norm where the norms come first."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from encdoctor.reference import masks
from encdoctor.reference.blocks import Block, make_norm
from encdoctor.reference.config import EncoderConfig
from encdoctor.reference.initialisation import initialise
from encdoctor.reference.patterns import Dense, Local, Pattern
from encdoctor.reference.positions import Rotation, angles, input_position, score_bias


class TokenEmbedding(nn.Module):
    """A row of the table for each token id, times √D by option; and BERT's for the segment it is in."""

    def __init__(self, config: EncoderConfig, vocab_size: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, config.d_model)
        self.types = nn.Embedding(config.token_types, config.d_model) if config.token_types else None
        self.scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0

    def forward(self, input_ids: Tensor) -> Tensor:
        """(B, S) → (B, S, D)."""
        x: Tensor = self.tokens(input_ids)
        return x * self.scale if self.scale != 1.0 else x


class Encoder(nn.Module):
    """A Transformer encoder (Vaswani et al. 2017), in every variant that its config names.

    ``embedding`` is what reads the input where it is not token ids: any module that returns (B, S, D),
    such as :class:`encdoctor.reference.vision.PatchEmbedding`.
    """

    def __init__(self, config: EncoderConfig | None = None, embedding: nn.Module | None = None) -> None:
        super().__init__()
        self.config = config = config or EncoderConfig()
        self.embedding: nn.Module | None = None
        if embedding is None and config.vocab_size is not None:
            self.embedding = TokenEmbedding(config, config.vocab_size)
        self.position = input_position(config)
        self.embedding_norm = make_norm(config) if config.embedding_norm else None
        self.dropout = nn.Dropout(config.dropout)
        self.score_bias = score_bias(config)
        different = 1 if config.share_layers else config.num_layers
        rates = [config.drop_path * (i + 1) / different for i in range(different)]
        self.layers = nn.ModuleList(Block(config, rate) for rate in rates)
        self.final_norm = make_norm(config) if config.has_final_norm else None
        initialise(self, config)
        if embedding is not None:  # comes with its own weights
            self.embedding = embedding

    @classmethod
    def from_torch(cls, source: nn.TransformerEncoder) -> "Encoder":
        """The same encoder as an ``nn.TransformerEncoder``, with its weights."""
        from encdoctor.reference.weights import encoder_from_torch

        return encoder_from_torch(source)

    @classmethod
    def from_huggingface(cls, source: nn.Module) -> "Encoder":
        """The same encoder as a BERT, RoFormer, ViT or T5 encoder of ``transformers``, with its weights."""
        from encdoctor.reference.weights import encoder_from_huggingface

        return encoder_from_huggingface(source)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        *,
        inputs_embeds: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        """Encodes a batch.

        Args:
            input_ids: (B, S) token ids, or what the encoder's own ``embedding`` reads.
            attention_mask: boolean or 0/1 integers, True or 1 = may attend, False or 0 = hidden. Either
                (B, S), True for each real token and False for padding, or a mask that broadcasts to
                (B, H, S, S): which query (dimension 2) may attend to which key (dimension 3).
            inputs_embeds: (B, S, D) embeddings instead of ``input_ids``; used as they are, unscaled.
            token_type_ids: (B, S) segment numbers, 0 where not given; with ``config.token_types`` only.

        Returns:
            (B, S, D) hidden states; with a (B, S) mask they are zero at padding.
        """
        x = self.embed(input_ids, inputs_embeds, token_type_ids)
        rotation = self.rotation(x)
        x = self.run_layers(x, self.pattern(x, attention_mask), rotation)
        if attention_mask is not None and attention_mask.dim() == 2:
            x = x.masked_fill(~attention_mask.bool()[..., None], 0.0)
        return x

    def embed(
        self,
        input_ids: Tensor | None,
        inputs_embeds: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        """The first layer's input, (B, S, D)."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give either input_ids or inputs_embeds")
        if inputs_embeds is not None:
            x = inputs_embeds
        elif self.embedding is None:
            raise ValueError("this encoder has no token table (vocab_size=None): give inputs_embeds")
        else:
            x = self.embedding(input_ids)
        if x.dim() != 3 or x.shape[-1] != self.config.d_model:
            raise ValueError(f"embeddings must be (B, S, {self.config.d_model}), not {tuple(x.shape)}")
        types = self.embedding.types if isinstance(self.embedding, TokenEmbedding) else None
        if types is not None:
            x = x + (types.weight[0] if token_type_ids is None else types(token_type_ids))
        elif token_type_ids is not None:
            raise ValueError("this encoder has no segment table: set token_types")
        if self.position is not None:
            x = self.position(x)
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        dropped: Tensor = self.dropout(x)
        return dropped

    def rotation(self, x: Tensor) -> Rotation | None:
        """The turn of queries and keys, for x of (B, S, D), where positions are rotary."""
        if self.config.position != "rotary":
            return None
        return Rotation(angles(x.shape[1], self.config.width_per_head, x.device), x.dtype)

    def pattern(self, x: Tensor, attention_mask: Tensor | None) -> Pattern:
        """Who attends to whom: local where a window and at most a (B, S) mask are given."""
        if self.config.window is None or (attention_mask is not None and attention_mask.dim() != 2):
            return self.dense_pattern(x, attention_mask)
        if attention_mask is not None:
            keys = masks.broadcastable(attention_mask)
            masks.check_shape(keys, x.shape[0], self.config.num_heads, x.shape[1])
            attention_mask = keys[:, 0, 0]
        return Local(
            self.config.window, x.shape[0], x.shape[1], x.device,
            mask=attention_mask, bias=self.score_bias, causal=self.config.causal, dtype=x.dtype,
        )  # fmt: skip

    def dense_pattern(self, x: Tensor, attention_mask: Tensor | None) -> Dense:
        """All that hides or weighs scores, for x of (B, S, D), as one (B, H, S, S) pattern."""
        length, config = x.shape[1], self.config
        mask = masks.combine(
            attention_mask,
            masks.causal(length, x.device)[None, None] if config.causal else None,
            masks.window(length, config.window, x.device)[None, None] if config.window else None,
        )
        if mask is not None:
            masks.check_shape(mask, x.shape[0], config.num_heads, length)
        bias = None
        if self.score_bias is not None:
            bias = self.score_bias(masks.distances(length, length, x.device)).to(x.dtype)
        return Dense(mask, bias)

    def depth(self) -> list[Any]:
        """The blocks in the order of use; a shared one appears again and again."""
        return list(self.layers) * (self.config.num_layers if self.config.share_layers else 1)

    def run_layers(self, x: Tensor, pattern: Pattern, rotation: Rotation | None) -> Tensor:
        """(B, S, D) → (B, S, D), through every layer and the last norm."""
        for layer in self.depth():
            if self.config.checkpointing and torch.is_grad_enabled():
                x = checkpoint(layer, x, pattern, rotation, use_reentrant=False)
            else:
                x = layer(x, pattern, rotation)
        return x if self.final_norm is None else self.final_norm(x)

    def attention_weights(
        self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, **inputs: Tensor
    ) -> list[Tensor]:
        """Each layer's (B, H, S, S) attention weights, for the arguments of :meth:`forward`."""
        x = self.embed(input_ids, **inputs)
        pattern, rotation = self.dense_pattern(x, attention_mask), self.rotation(x)
        weights = []
        for layer in self.depth():
            weights.append(layer.attention_weights(x, pattern, rotation))
            x = layer(x, pattern, rotation)
        return weights
