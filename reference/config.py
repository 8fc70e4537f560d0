"""What an encoder is made of: one frozen, validated record."""

from dataclasses import dataclass
from typing import Literal, get_args

Position = Literal["sinusoidal", "learned", "rotary", "alibi", "relative", "none"]
Norm = Literal["layernorm", "rmsnorm"]
NormPlacement = Literal["pre", "post"]
Activation = Literal["relu", "gelu", "swiglu", "geglu"]
AttentionKind = Literal["sdpa", "explicit"]
Initialisation = Literal["xavier", "normal", "depth_scaled"]

CHOICES: dict[str, tuple[str, ...]] = {
    "position": get_args(Position),
    "norm": get_args(Norm),
    "norm_placement": get_args(NormPlacement),
    "activation": get_args(Activation),
    "attention": get_args(AttentionKind),
    "initialisation": get_args(Initialisation),
    "gelu_approximate": ("none", "tanh"),
}


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """The size and the variants of an encoder; the defaults are the paper's, with the norm in front.

    Sizes, with the symbols of the shape comments:

    - ``vocab_size`` V: rows of the token table; None for an encoder that reads embeddings only
    - ``d_model`` D, ``num_heads`` H, ``head_dim`` (None: D / H), ``num_layers``, ``d_ff`` F
    - ``max_length``: rows of the learned position table; the other positions have no limit

    Variants:

    - ``window``: each position sees this many neighbours on either side; None: all of them
    - ``causal``: no position sees a later one
    - ``scale_embedding``: token embeddings are multiplied by √D (Vaswani et al. 2017, 3.4)
    - ``dropout``: on the embeddings' sum and on each sub-layer's output; ``attention_dropout``: on the
      attention weights; ``drop_path``: the chance to skip a sub-layer, linear in depth up to this value
    - ``share_layers``: one layer's weights, used ``num_layers`` times (ALBERT)
    - ``checkpointing``: recompute each layer in the backward pass instead of keeping its activations
    - ``final_norm``: a norm after the last layer; None: where the norm comes first, which needs one
    - ``attention_scale``: factor on the scores; None: 1 / √head_dim (T5 has 1)
    - ``token_types``, ``embedding_norm``: BERT's segment table, and its norm on the embeddings' sum
    """

    vocab_size: int | None = 1000
    d_model: int = 512
    num_heads: int = 8
    head_dim: int | None = None
    num_layers: int = 6
    d_ff: int = 2048
    max_length: int = 512
    position: Position = "sinusoidal"
    norm: Norm = "layernorm"
    norm_placement: NormPlacement = "pre"
    activation: Activation = "relu"
    attention: AttentionKind = "sdpa"
    fused_qkv: bool = True
    window: int | None = None
    causal: bool = False
    scale_embedding: bool = True
    dropout: float = 0.1
    attention_dropout: float = 0.1
    drop_path: float = 0.0
    initialisation: Initialisation = "xavier"
    share_layers: bool = False
    checkpointing: bool = False
    bias: bool = True
    norm_eps: float = 1e-5
    final_norm: bool | None = None
    attention_scale: float | None = None
    gelu_approximate: Literal["none", "tanh"] = "none"
    relative_buckets: int = 32
    relative_max_distance: int = 128
    token_types: int = 0
    embedding_norm: bool = False

    def __post_init__(self) -> None:
        for name in ("d_model", "num_heads", "num_layers", "d_ff", "max_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("vocab_size", "head_dim", "window"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be None or at least 1, not {value}")
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, not {getattr(self, name)!r}")
        for name in ("dropout", "attention_dropout", "drop_path"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, not {getattr(self, name)}")
        if self.norm_eps <= 0:
            raise ValueError(f"norm_eps must be above 0, not {self.norm_eps}")
        if self.token_types < 0:
            raise ValueError(f"token_types must be at least 0, not {self.token_types}")
        if self.head_dim is None and self.d_model % self.num_heads:
            raise ValueError(
                f"d_model ({self.d_model}) is not divisible by num_heads ({self.num_heads}): "
                "change one of them, or set head_dim"
            )
        if self.position == "rotary" and self.width_per_head % 2:
            raise ValueError(f"rotary positions turn pairs: head_dim must be even, not {self.width_per_head}")
        if self.position == "relative":
            directions = 1 if self.causal else 2
            exact = self.relative_buckets // directions // 2
            if self.relative_buckets % (2 * directions) or exact < 1:
                raise ValueError(
                    f"relative_buckets must be a multiple of {2 * directions}, not {self.relative_buckets}"
                )
            if self.relative_max_distance <= exact:
                raise ValueError(
                    f"relative_max_distance ({self.relative_max_distance}) must be above {exact}, the number "
                    "of distances with a bucket of their own"
                )

    @property
    def width_per_head(self) -> int:
        """``head_dim``, worked out where it is None."""
        return self.d_model // self.num_heads if self.head_dim is None else self.head_dim

    @property
    def has_final_norm(self) -> bool:
        """``final_norm``, worked out where it is None."""
        return self.norm_placement == "pre" if self.final_norm is None else self.final_norm
