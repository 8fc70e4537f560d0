"""The layer's parts against their formulas: feed-forward, norms, the dropouts, sharing, initialisation."""

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from encdoctor.reference import Encoder, EncoderConfig
from encdoctor.reference.blocks import Block, DropPath, FeedForward, make_norm
from encdoctor.reference.patterns import Dense

torch.set_num_threads(1)


def small(**changes: Any) -> EncoderConfig:
    fields: dict[str, Any] = {"vocab_size": 50, "d_model": 8, "num_heads": 2, "num_layers": 3, "d_ff": 12}
    return EncoderConfig(**{**fields, **changes})


@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu", "geglu"])
def test_feed_forward_formula(activation: Any) -> None:
    network = FeedForward(small(activation=activation)).double()
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    h = x @ network.expand.weight.T + network.expand.bias
    if activation == "relu":
        h = h * (h > 0)
    elif activation == "gelu":
        h = h * 0.5 * (1 + torch.erf(h / math.sqrt(2)))
    elif activation == "swiglu":
        h = h[..., :12] * torch.sigmoid(h[..., :12]) * h[..., 12:]
    else:
        h = F.gelu(h[..., :12]) * h[..., 12:]
    expected = h @ network.contract.weight.T + network.contract.bias
    assert (network(x) - expected).abs().max() < 1e-12
    assert torch.autograd.gradcheck(network, x.requires_grad_())


def test_rmsnorm_formula() -> None:
    norm, x = make_norm(small(norm="rmsnorm")).double(), torch.randn(3, 8, dtype=torch.float64)
    expected = x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-5)
    assert (norm(x) - expected).abs().max() < 1e-12


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_block_formula(placement: Any) -> None:
    block = Block(small(norm_placement=placement)).double().eval()
    x, everyone = torch.randn(2, 5, 8, dtype=torch.float64), Dense()
    one, two = block.attention_norm, block.feed_forward_norm
    if placement == "pre":
        middle = x + block.attention(one(x), everyone)
        expected = middle + block.feed_forward(two(middle))
    else:
        middle = one(x + block.attention(x, everyone))
        expected = two(middle + block.feed_forward(middle))
    assert (block(x, everyone) - expected).abs().max() < 1e-12


def test_drop_path_skips_whole_samples_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    drop, x = DropPath(0.3), torch.ones(4000, 3, 2)
    out = drop(x)
    assert out.flatten(1).unique(dim=1).shape[1] == 1
    assert out.unique().tolist() == pytest.approx([0, 1 / 0.7])
    assert abs(out.mean().item() - 1) < 0.05
    assert torch.equal(drop.eval()(x), x)
    assert drop.train()(x.half()).dtype == torch.float16
    rates = [layer.drop_path.rate for layer in Encoder(small(drop_path=0.3)).depth()]
    assert rates == pytest.approx([0.1, 0.2, 0.3])


@pytest.mark.parametrize("attention", ["sdpa", "explicit"])
def test_dropout_is_in_three_places_and_only_in_training(attention: Any) -> None:
    ids = torch.randint(50, (2, 6))
    off: dict[str, Any] = {"dropout": 0.0, "attention_dropout": 0.0, "attention": attention}
    plain = Encoder(small(**off)).train()
    assert torch.equal(plain(ids), plain(ids))
    for place in ({"dropout": 0.5}, {"attention_dropout": 0.5}, {"drop_path": 0.5}):
        torch.manual_seed(0)
        encoder = Encoder(small(**{**off, **place})).train()
        assert not torch.equal(encoder(ids), encoder(ids))
    encoder = Encoder(small(**{**off, "dropout": 0.5}))
    places = [name for name, m in encoder.named_modules() if isinstance(m, nn.Dropout) and m.p == 0.5]
    assert places == ["dropout", *(f"layers.{i}.dropout" for i in range(3))]


def test_embedding_scale() -> None:
    torch.manual_seed(0)
    ids = torch.randint(50, (2, 6))
    encoder = Encoder(small(position="none")).eval()
    assert encoder.embedding is not None
    table: Any = encoder.embedding.tokens
    assert torch.equal(encoder.embed(ids), table(ids) * math.sqrt(8))
    assert torch.equal(encoder.embed(None, table(ids)), table(ids))


def test_shared_layers() -> None:
    shared, separate = Encoder(small(share_layers=True)).eval(), Encoder(small()).eval()
    assert len(shared.layers) == 1
    state = shared.state_dict()
    for name in separate.state_dict():
        state[name] = state[".".join(["layers.0", *name.split(".")[2:]]) if name.startswith("layers") else name]
    separate.load_state_dict(state)
    ids = torch.randint(50, (2, 6))
    assert torch.equal(shared(ids), separate(ids))


@pytest.mark.parametrize("fused", [True, False])
def test_initialisation(fused: bool) -> None:
    size: dict[str, Any] = {"d_model": 64, "d_ff": 256, "num_layers": 8, "fused_qkv": fused}
    torch.manual_seed(0)
    xavier = Encoder(small(**size)).depth()[0]
    projection = xavier.attention.qkv if fused else xavier.attention.query
    bound = math.sqrt(6 / 128)  # of a 64 × 64 matrix, fused or not
    assert 0.98 * bound < projection.weight.abs().max() <= bound
    assert xavier.feed_forward.expand.weight.abs().max() <= math.sqrt(6 / 320)
    normal = Encoder(small(**size, initialisation="normal"))
    for name, parameter in normal.named_parameters():
        if name.endswith("bias"):
            assert parameter.eq(0).all()
        elif "norm" in name:
            assert parameter.eq(1).all()
        else:
            assert abs(parameter.std().item() / 0.02 - 1) < 0.05
    scaled = Encoder(small(**size, initialisation="depth_scaled")).depth()[0]
    for last in (scaled.attention.output, scaled.feed_forward.contract):
        assert abs(last.weight.std().item() / (0.02 / math.sqrt(16)) - 1) < 0.05
    assert abs(scaled.feed_forward.expand.weight.std().item() / 0.02 - 1) < 0.05
