"""Outputs and gradients equal those of torch and transformers with the same weights, to 1e-10 in float64."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from encdoctor.reference import Encoder, weights

torch.set_num_threads(1)
B, S, D, H, F = 3, 9, 24, 3, 40
TOLERANCE = 1e-10


def padded(batch: int, length: int) -> Tensor:
    """A (B, S) mask: one full sample, one shorter, one of a single token."""
    lengths = torch.tensor([length, length // 2, 1])[:batch]
    return torch.arange(length) < lengths[:, None]


def spread_weights(model: nn.Module) -> None:
    """Random values for everything, so that no bias is zero and no norm the identity."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)


def assert_same(
    ours: Encoder, theirs: nn.Module, rules: weights.Rules, out: Tensor, expected: Tensor, mask: Tensor
) -> None:
    """Equal on real tokens, and a random loss on them has equal gradients for every weight."""
    assert (out - expected)[mask].abs().max() < TOLERANCE
    probe = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(1))
    torch.autograd.backward([(out * probe)[mask].sum(), (expected * probe)[mask].sum()])
    gradients = {
        name: p.grad if p.grad is not None else torch.zeros_like(p)
        for name, p in theirs.named_parameters(remove_duplicate=False)
    }
    translated = weights.translate(gradients, rules)
    own = dict(ours.named_parameters())
    assert translated.keys() == own.keys()
    for name, parameter in own.items():
        gradient = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
        assert (gradient - translated[name]).abs().max() < TOLERANCE, name


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("final_norm", [True, False])
def test_torch(norm_first: bool, activation: str, final_norm: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(D, H, F, 0.0, activation, batch_first=True, norm_first=norm_first)
    theirs = nn.TransformerEncoder(
        layer, 2, nn.LayerNorm(D) if final_norm else None, enable_nested_tensor=False
    ).double()
    spread_weights(theirs)
    ours = Encoder.from_torch(theirs)
    x, mask = torch.randn(B, S, D, dtype=torch.float64), padded(B, S)
    expected = theirs(x, src_key_padding_mask=~mask)
    assert_same(ours, theirs, weights.TORCH, ours(inputs_embeds=x, attention_mask=mask), expected, mask)


def test_torch_causal_mask() -> None:
    layer = nn.TransformerEncoderLayer(D, H, F, 0.0, batch_first=True)
    theirs = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).double()
    spread_weights(theirs)
    causal = torch.ones(S, S, dtype=torch.bool).tril()
    x = torch.randn(B, S, D, dtype=torch.float64)
    ours = Encoder.from_torch(theirs)(inputs_embeds=x, attention_mask=causal[None, None])
    assert (ours - theirs(x, mask=~causal)).abs().max() < TOLERANCE


# ids start at 1 below: the token tables of transformers give the pad id, 0, no gradient


def sizes() -> dict[str, Any]:
    return {
        "hidden_size": D,
        "num_hidden_layers": 2,
        "num_attention_heads": H,
        "intermediate_size": F,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_bert(implementation: str) -> None:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    make: Any = BertConfig
    config = make(vocab_size=50, max_position_embeddings=16, attn_implementation=implementation, **sizes())
    theirs = BertModel(config, add_pooling_layer=False).double()
    spread_weights(theirs)
    ours = Encoder.from_huggingface(theirs)
    ids, types, mask = torch.randint(1, 50, (B, S)), torch.randint(0, 2, (B, S)), padded(B, S)
    expected = theirs(ids, attention_mask=mask.long(), token_type_ids=types).last_hidden_state
    assert_same(ours, theirs, weights.BERT, ours(ids, mask.long(), token_type_ids=types), expected, mask)
    assert torch.equal(ours(ids, mask), ours(ids, mask, token_type_ids=torch.zeros_like(ids)))


def test_roformer() -> None:
    from transformers import RoFormerConfig, RoFormerModel

    torch.manual_seed(0)
    theirs = RoFormerModel(RoFormerConfig(vocab_size=50, max_position_embeddings=16, **sizes())).double()
    spread_weights(theirs)
    with torch.no_grad():  # theirs is rounded to float32: put the exact table in its place
        pairs = torch.arange(0, D // H, 2, dtype=torch.float64)
        angle = torch.arange(16, dtype=torch.float64)[:, None] / 10000 ** (pairs / (D // H))
        theirs.encoder.embed_positions.weight.copy_(torch.cat((angle.sin(), angle.cos()), dim=-1))
    ours = Encoder.from_huggingface(theirs)
    ids, mask = torch.randint(1, 50, (B, S)), padded(B, S)
    expected = theirs(ids, attention_mask=mask.long()).last_hidden_state
    assert_same(ours, theirs, weights.BERT, ours(ids, mask), expected, mask)


def test_vit() -> None:
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(0)
    config = ViTConfig(image_size=12, patch_size=4, num_channels=2, **sizes())
    theirs = ViTModel(config, add_pooling_layer=False).double()
    spread_weights(theirs)
    ours = Encoder.from_huggingface(theirs)
    pixels = torch.randn(B, 2, 12, 12, dtype=torch.float64)
    expected = theirs(pixels).last_hidden_state
    everything = torch.ones(expected.shape[:2], dtype=torch.bool)
    assert_same(ours, theirs, weights.VIT, ours(pixels), expected, everything)


@pytest.mark.parametrize("feed_forward", ["relu", "gated-gelu", "gated-silu"])
def test_t5(feed_forward: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import T5Config, T5EncoderModel
    from transformers.models.t5.modeling_t5 import T5LayerNorm

    def exact_norm(norm: Any, x: Tensor) -> Tensor:  # theirs rounds the variance to float32 in every dtype
        variance = x.pow(2).mean(-1, keepdim=True)
        scaled: Tensor = norm.weight * x * torch.rsqrt(variance + norm.variance_epsilon)
        return scaled

    monkeypatch.setattr(T5LayerNorm, "forward", exact_norm)

    torch.manual_seed(0)
    config = T5Config(
        vocab_size=50, d_model=D, d_kv=6, d_ff=F, num_layers=2, num_heads=H, dropout_rate=0.0,
        feed_forward_proj=feed_forward, relative_attention_max_distance=20, relative_attention_num_buckets=8,
    )  # fmt: skip
    theirs = T5EncoderModel(config).double()
    spread_weights(theirs)
    ours = Encoder.from_huggingface(theirs)
    length = 40  # beyond the largest distance with a bucket
    ids, mask = torch.randint(1, 50, (B, length)), padded(B, length)
    expected = theirs(ids, attention_mask=mask.long()).last_hidden_state
    assert_same(ours, theirs, weights.T5, ours(ids, mask), expected, mask)


def test_t5_buckets() -> None:
    from transformers.models.t5.modeling_t5 import T5Attention

    from encdoctor.reference.positions import RelativeBias

    theirs: Any = T5Attention
    distance = torch.arange(-3000, 3001)[None]
    for both in (True, False):
        for buckets, longest in ((32, 128), (16, 1000)):
            expected = theirs._relative_position_bucket(distance, both, buckets, longest)
            assert torch.equal(RelativeBias(2, buckets, longest, both).bucket(distance), expected)


def test_unsupported_sources_say_so() -> None:
    from transformers import GPT2Config, GPT2Model

    with pytest.raises(ValueError, match="'gpt2' is not supported"):
        Encoder.from_huggingface(GPT2Model(GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=5)))
    layer = nn.TransformerEncoderLayer(D, H, activation=torch.tanh)
    with pytest.raises(ValueError, match="ReLU or GELU"):
        Encoder.from_torch(nn.TransformerEncoder(layer, 1, enable_nested_tensor=False))
    with pytest.raises(ValueError, match="has no place"):
        weights.translate({"decoder.weight": torch.zeros(1)}, weights.BERT)


def test_conversion_keeps_mode_and_dtype() -> None:
    theirs = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, H), 1, enable_nested_tensor=False).eval().half()
    ours = Encoder.from_torch(theirs)
    assert not ours.training
    assert next(ours.parameters()).dtype == torch.float16
    assert math.isclose(ours.config.dropout, 0.1)
