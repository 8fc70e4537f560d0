"""Weights from other implementations: the same outputs and, with dropout off, the same gradients.

Each source is a table of name rules that turns its state dict into ours. The rules rename and join
tensors and do nothing else, so that they map a dict of gradients just as well.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encdoctor.reference.config import EncoderConfig
from encdoctor.reference.encoder import Encoder
from encdoctor.reference.vision import PatchEmbedding

State = dict[str, Tensor]
Rules = Sequence[tuple[str, str]]

TORCH: Rules = (
    (r"layers\.(\d+)\.self_attn\.in_proj_(weight|bias)", r"layers.\1.attention.qkv.\2"),
    (r"layers\.(\d+)\.self_attn\.out_proj\.(.*)", r"layers.\1.attention.output.\2"),
    (r"layers\.(\d+)\.linear1\.(.*)", r"layers.\1.feed_forward.expand.\2"),
    (r"layers\.(\d+)\.linear2\.(.*)", r"layers.\1.feed_forward.contract.\2"),
    (r"layers\.(\d+)\.norm1\.(.*)", r"layers.\1.attention_norm.\2"),
    (r"layers\.(\d+)\.norm2\.(.*)", r"layers.\1.feed_forward_norm.\2"),
    (r"norm\.(.*)", r"final_norm.\1"),
)
BERT: Rules = (  # and RoFormer
    (r"embeddings\.word_embeddings\.weight", r"embedding.tokens.weight"),
    (r"embeddings\.token_type_embeddings\.weight", r"embedding.types.weight"),
    (r"embeddings\.position_embeddings\.weight", r"position.table.weight"),
    (r"embeddings\.LayerNorm\.(.*)", r"embedding_norm.\1"),
    (r"encoder\.layer\.(\d+)\.attention\.self\.(query|key|value)\.(.*)", r"layers.\1.attention.\2.\3"),
    (r"encoder\.layer\.(\d+)\.attention\.output\.dense\.(.*)", r"layers.\1.attention.output.\2"),
    (r"encoder\.layer\.(\d+)\.attention\.output\.LayerNorm\.(.*)", r"layers.\1.attention_norm.\2"),
    (r"encoder\.layer\.(\d+)\.intermediate\.dense\.(.*)", r"layers.\1.feed_forward.expand.\2"),
    (r"encoder\.layer\.(\d+)\.output\.dense\.(.*)", r"layers.\1.feed_forward.contract.\2"),
    (r"encoder\.layer\.(\d+)\.output\.LayerNorm\.(.*)", r"layers.\1.feed_forward_norm.\2"),
    (r"(pooler|encoder\.embed_positions)\..*", ""),  # not the encoder's, and a table that we compute
)
VIT: Rules = (  # the names since transformers 5, then those before
    (r"embeddings\.cls_token", r"embedding.cls"),
    (r"embeddings\.position_embeddings", r"position.table.weight"),
    (r"embeddings\.patch_embeddings\.projection\.(.*)", r"embedding.projection.\1"),
    (r"layers\.(\d+)\.attention\.q_proj\.(.*)", r"layers.\1.attention.query.\2"),
    (r"layers\.(\d+)\.attention\.k_proj\.(.*)", r"layers.\1.attention.key.\2"),
    (r"layers\.(\d+)\.attention\.v_proj\.(.*)", r"layers.\1.attention.value.\2"),
    (r"layers\.(\d+)\.attention\.o_proj\.(.*)", r"layers.\1.attention.output.\2"),
    (r"layers\.(\d+)\.mlp\.fc1\.(.*)", r"layers.\1.feed_forward.expand.\2"),
    (r"layers\.(\d+)\.mlp\.fc2\.(.*)", r"layers.\1.feed_forward.contract.\2"),
    (r"encoder\.layer\.(\d+)\.attention\.attention\.(query|key|value)\.(.*)", r"layers.\1.attention.\2.\3"),
    (r"encoder\.layer\.(\d+)\.attention\.output\.dense\.(.*)", r"layers.\1.attention.output.\2"),
    (r"encoder\.layer\.(\d+)\.intermediate\.dense\.(.*)", r"layers.\1.feed_forward.expand.\2"),
    (r"encoder\.layer\.(\d+)\.output\.dense\.(.*)", r"layers.\1.feed_forward.contract.\2"),
    (r"(?:encoder\.)?layers?\.(\d+)\.layernorm_before\.(.*)", r"layers.\1.attention_norm.\2"),
    (r"(?:encoder\.)?layers?\.(\d+)\.layernorm_after\.(.*)", r"layers.\1.feed_forward_norm.\2"),
    (r"layernorm\.(.*)", r"final_norm.\1"),
    (r"pooler\..*|embeddings\.mask_token", ""),
)
T5: Rules = (
    (r"shared\.weight", r"embedding.tokens.weight"),
    (r"encoder\.embed_tokens\.weight", ""),  # the same table
    (r"encoder\.block\.\d+\.layer\.0\.SelfAttention\.relative_attention_bias\.(.*)", r"score_bias.table.\1"),
    (r"encoder\.block\.(\d+)\.layer\.0\.SelfAttention\.q\.(.*)", r"layers.\1.attention.query.\2"),
    (r"encoder\.block\.(\d+)\.layer\.0\.SelfAttention\.k\.(.*)", r"layers.\1.attention.key.\2"),
    (r"encoder\.block\.(\d+)\.layer\.0\.SelfAttention\.v\.(.*)", r"layers.\1.attention.value.\2"),
    (r"encoder\.block\.(\d+)\.layer\.0\.SelfAttention\.o\.(.*)", r"layers.\1.attention.output.\2"),
    (r"encoder\.block\.(\d+)\.layer\.0\.layer_norm\.(.*)", r"layers.\1.attention_norm.\2"),
    (r"encoder\.block\.(\d+)\.layer\.1\.DenseReluDense\.wi\.(.*)", r"layers.\1.feed_forward.expand.\2"),
    (r"encoder\.block\.(\d+)\.layer\.1\.DenseReluDense\.wi_0\.(.*)", r"layers.\1.feed_forward.gate.\2"),
    (r"encoder\.block\.(\d+)\.layer\.1\.DenseReluDense\.wi_1\.(.*)", r"layers.\1.feed_forward.linear.\2"),
    (r"encoder\.block\.(\d+)\.layer\.1\.DenseReluDense\.wo\.(.*)", r"layers.\1.feed_forward.contract.\2"),
    (r"encoder\.block\.(\d+)\.layer\.1\.layer_norm\.(.*)", r"layers.\1.feed_forward_norm.\2"),
    (r"encoder\.final_layer_norm\.(.*)", r"final_norm.\1"),
)
HUGGINGFACE: dict[str, Rules] = {"bert": BERT, "roformer": BERT, "vit": VIT, "t5": T5}

JOINED = (  # our fused matrices, and the parts that they stack
    ("attention.qkv", ("attention.query", "attention.key", "attention.value")),
    ("feed_forward.expand", ("feed_forward.gate", "feed_forward.linear")),
)
ACTIVATIONS: dict[str, dict[str, Any]] = {
    "relu": {"activation": "relu"},
    "gelu": {"activation": "gelu"},
    "gelu_new": {"activation": "gelu", "gelu_approximate": "tanh"},
    "gelu_pytorch_tanh": {"activation": "gelu", "gelu_approximate": "tanh"},
}
GATED: dict[str, dict[str, Any]] = {
    "silu": {"activation": "swiglu"},
    "gelu": {"activation": "geglu"},
    "gelu_new": {"activation": "geglu", "gelu_approximate": "tanh"},
}


def translate(state: Mapping[str, Tensor], rules: Rules) -> State:
    """Another implementation's tensors under our names, fused ones joined; ValueError for an unknown one."""
    renamed: State = {}
    for name, tensor in state.items():
        for pattern, replacement in rules:
            if match := re.fullmatch(pattern, name):
                if replacement:
                    renamed[match.expand(replacement)] = tensor
                break
        else:
            raise ValueError(f"the weight {name!r} has no place in this encoder")
    for whole, parts in JOINED:
        for name in [name for name in renamed if parts[0] in name]:
            stacked = [renamed.pop(name.replace(parts[0], part)) for part in parts]
            renamed[name.replace(parts[0], whole)] = torch.cat(stacked)
    for name, tensor in renamed.items():
        if name == "position.table.weight" and tensor.dim() == 3:  # ViT's has a batch dimension
            renamed[name] = tensor[0]
    return renamed


def filled(encoder: Encoder, source: nn.Module, rules: Rules) -> Encoder:
    """The encoder with the source's weights, dtype, device and mode."""
    state = translate(source.state_dict(), rules)
    first = next(iter(state.values()))
    encoder = encoder.to(device=first.device, dtype=first.dtype).train(source.training)
    encoder.load_state_dict(state)
    return encoder


def known(table: Mapping[str, Any], key: Any, what: str) -> Any:
    """``table[key]``, or a ValueError that says what is supported."""
    if key not in table:
        raise ValueError(f"{what} {key!r} is not supported: it must be one of {', '.join(table)}")
    return table[key]


def torch_activation(activation: Callable[[Tensor], Tensor]) -> str:
    """The name of an ``nn.TransformerEncoderLayer``'s activation."""
    if activation is F.relu or isinstance(activation, nn.ReLU):
        return "relu"
    if activation is F.gelu or (isinstance(activation, nn.GELU) and activation.approximate == "none"):
        return "gelu"
    raise ValueError(f"the activation must be ReLU or GELU, not {activation}")


def encoder_from_torch(source: nn.TransformerEncoder) -> Encoder:
    """The same encoder as an ``nn.TransformerEncoder``; it reads ``inputs_embeds``, batch first.

    In training, torch also drops out within the feed-forward network; the paper and this encoder do not.
    """
    layer: Any = source.layers[0]
    if source.norm is not None and not (isinstance(source.norm, nn.LayerNorm) and source.norm.eps == layer.norm1.eps):
        raise ValueError("the final norm must be a LayerNorm with the layers' eps")
    config = EncoderConfig(
        vocab_size=None,
        d_model=layer.self_attn.embed_dim,
        num_heads=layer.self_attn.num_heads,
        num_layers=len(source.layers),
        d_ff=layer.linear1.out_features,
        position="none",
        norm_placement="pre" if layer.norm_first else "post",
        final_norm=source.norm is not None,
        norm_eps=layer.norm1.eps,
        activation=known(ACTIVATIONS, torch_activation(layer.activation), "the activation")["activation"],
        bias=layer.linear1.bias is not None,
        dropout=layer.dropout1.p,
        attention_dropout=layer.self_attn.dropout,
    )
    return filled(Encoder(config), source, TORCH)


def encoder_from_huggingface(source: nn.Module) -> Encoder:
    """The same encoder as a BertModel, RoFormerModel, ViTModel or T5EncoderModel, less its pooler."""
    theirs: Any = source.config
    rules = known(HUGGINGFACE, theirs.model_type, "the model type")
    if theirs.model_type == "t5":
        return filled(Encoder(t5_config(theirs)), source, rules)
    common: dict[str, Any] = {
        "d_model": theirs.hidden_size,
        "num_heads": theirs.num_attention_heads,
        "num_layers": theirs.num_hidden_layers,
        "d_ff": theirs.intermediate_size,
        "norm_eps": theirs.layer_norm_eps,
        "scale_embedding": False,
        "dropout": theirs.hidden_dropout_prob,
        "attention_dropout": theirs.attention_probs_dropout_prob,
        **known(ACTIVATIONS, theirs.hidden_act, "the activation"),
    }
    if theirs.model_type == "vit":
        if not theirs.qkv_bias:
            raise ValueError("a ViT with qkv_bias=False is not supported")
        patches = PatchEmbedding(theirs.image_size, theirs.patch_size, theirs.hidden_size, channels=theirs.num_channels)
        config = EncoderConfig(vocab_size=None, position="learned", max_length=patches.length, **common)
        return filled(Encoder(config, patches), source, rules)
    if theirs.model_type == "roformer" and (theirs.rotary_value or theirs.embedding_size != theirs.hidden_size):
        raise ValueError("RoFormer with rotary_value, or with an embedding_size of its own, is not supported")
    config = EncoderConfig(
        vocab_size=theirs.vocab_size,
        position="rotary" if theirs.model_type == "roformer" else "learned",
        max_length=theirs.max_position_embeddings,
        norm_placement="post",
        embedding_norm=True,
        token_types=theirs.type_vocab_size,
        **common,
    )
    return filled(Encoder(config), source, rules)


def t5_config(theirs: Any) -> EncoderConfig:
    """T5's encoder: pre-norm RMSNorm, relative buckets, no biases, unscaled scores."""
    return EncoderConfig(
        vocab_size=theirs.vocab_size,
        d_model=theirs.d_model,
        num_heads=theirs.num_heads,
        head_dim=theirs.d_kv,
        num_layers=theirs.num_layers,
        d_ff=theirs.d_ff,
        position="relative",
        relative_buckets=theirs.relative_attention_num_buckets,
        relative_max_distance=theirs.relative_attention_max_distance,
        norm="rmsnorm",
        norm_eps=theirs.layer_norm_epsilon,
        bias=False,
        attention_scale=1.0,
        scale_embedding=False,
        dropout=theirs.dropout_rate,
        attention_dropout=theirs.dropout_rate,
        **known(GATED if theirs.is_gated_act else ACTIVATIONS, theirs.dense_act_fn, "the activation"),
    )
