"""What must hold for every config, mask, dtype and shape."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from encdoctor.reference import Encoder, EncoderConfig, PackedEncoder, masks

torch.set_num_threads(1)
EXAMPLES = settings(max_examples=60, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
VOCABULARY = 20


@st.composite
def configs(draw: st.DrawFn) -> EncoderConfig:
    """Small encoders of every variant; dropout off, odd sizes included."""
    heads, head_dim = draw(st.integers(1, 3)), draw(st.sampled_from([2, 4, 6]))
    free = draw(st.booleans())
    return EncoderConfig(
        vocab_size=VOCABULARY,
        d_model=draw(st.integers(2, 13)) if free else heads * head_dim,
        num_heads=heads,
        head_dim=head_dim if free else None,
        num_layers=draw(st.integers(1, 3)),
        d_ff=draw(st.integers(1, 17)),
        max_length=16,
        position=draw(st.sampled_from(["sinusoidal", "learned", "rotary", "alibi", "relative", "none"])),
        norm=draw(st.sampled_from(["layernorm", "rmsnorm"])),
        norm_placement=draw(st.sampled_from(["pre", "post"])),
        activation=draw(st.sampled_from(["relu", "gelu", "swiglu", "geglu"])),
        attention=draw(st.sampled_from(["sdpa", "explicit"])),
        fused_qkv=draw(st.booleans()),
        window=draw(st.sampled_from([None, None, 1, 2, 5])),
        causal=draw(st.booleans()),
        scale_embedding=draw(st.booleans()),
        dropout=0.0,
        attention_dropout=0.0,
        initialisation=draw(st.sampled_from(["xavier", "normal", "depth_scaled"])),
        share_layers=draw(st.booleans()),
        checkpointing=draw(st.booleans()),
        bias=draw(st.booleans()),
        token_types=draw(st.sampled_from([0, 2])),
        embedding_norm=draw(st.booleans()),
    )


@st.composite
def batches(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """(B, S) ids and a (B, S) mask with any pattern, fully padded rows and B = S included."""
    batch, length = draw(st.integers(1, 4)), draw(st.integers(1, 12))
    if draw(st.booleans()):
        batch = min(length, 4)
        length = batch
    torch.manual_seed(draw(st.integers(0, 1000)))
    mask = torch.rand(batch, length) < draw(st.sampled_from([0.0, 0.5, 0.9, 1.0]))
    return torch.randint(0, VOCABULARY, (batch, length)), mask


def build(config: EncoderConfig, dtype: torch.dtype = torch.float64) -> Encoder:
    """An encoder whose biases and norms are random too."""
    torch.manual_seed(0)
    encoder = Encoder(config).to(dtype)
    for parameter in encoder.parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, mean=0.5, std=0.3)
    return encoder


def gradients(encoder: Encoder, loss: Tensor) -> list[Tensor]:
    """The loss's gradient for each parameter, zeros where it does not depend on it."""
    found = torch.autograd.grad(loss, list(encoder.parameters()), allow_unused=True)
    return [torch.zeros(()) if g is None else g for g in found]


@EXAMPLES
@given(configs(), batches())
def test_padding_never_leaks(config: EncoderConfig, batch: tuple[Tensor, Tensor]) -> None:
    ids, mask = batch
    encoder = build(config)
    changed = torch.where(mask, ids, (ids + 1) % VOCABULARY)
    assert torch.equal(encoder(ids, mask), encoder(changed, mask))
    opened = mask[:, None, None]  # the same mask in four dimensions
    assert torch.equal(encoder(ids, opened)[mask], encoder(changed, opened)[mask])
    embeddings = torch.randn(*ids.shape, config.d_model, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(encoder(inputs_embeds=embeddings, attention_mask=mask).sum(), embeddings)
    assert gradient[~mask].eq(0).all()


@EXAMPLES
@given(configs(), batches(), st.integers(1, 11))
def test_causal_never_leaks(config: EncoderConfig, batch: tuple[Tensor, Tensor], cut: int) -> None:
    ids, mask = batch
    encoder = build(replace(config, causal=True))
    changed = ids.clone()
    changed[:, cut:] = (changed[:, cut:] + 1) % VOCABULARY
    assert torch.equal(encoder(ids, mask)[:, :cut], encoder(changed, mask)[:, :cut])


@EXAMPLES
@given(configs(), batches())
def test_samples_never_mix(config: EncoderConfig, batch: tuple[Tensor, Tensor]) -> None:
    ids, mask = batch
    encoder = build(config)
    changed, other_mask = ids.clone(), mask.clone()
    changed[1:] = (changed[1:] + 1) % VOCABULARY
    other_mask[1:] = ~other_mask[1:]
    assert torch.equal(encoder(ids, mask)[0], encoder(changed, other_mask)[0])
    alone = encoder(ids[:1], mask[:1])[0]
    assert (encoder(ids, mask)[0] - alone).abs().max() < 1e-12


@EXAMPLES
@given(configs(), batches())
def test_explicit_equals_sdpa(config: EncoderConfig, batch: tuple[Tensor, Tensor]) -> None:
    ids, mask = batch
    explicit, sdpa = build(replace(config, attention="explicit")), build(replace(config, attention="sdpa"))
    sdpa.load_state_dict(explicit.state_dict())
    first, second = explicit(ids, mask), sdpa(ids, mask)
    assert (first - second).abs().max() < 1e-12
    probe = torch.randn_like(first)
    pairs = zip(gradients(explicit, (first * probe).sum()), gradients(sdpa, (second * probe).sum()), strict=True)
    for one, other in pairs:
        assert (one - other).abs().max() < 1e-10 * max(1.0, float(one.abs().max()))


@EXAMPLES
@given(configs(), batches(), st.sampled_from([1, 2, 3, 7]))
def test_local_equals_dense_window(config: EncoderConfig, batch: tuple[Tensor, Tensor], window: int) -> None:
    ids, mask = batch
    local = build(replace(config, window=window))
    out, dense = local(ids, mask), local(ids, mask[:, None, None])  # a 4-D mask takes the dense path
    assert (out - dense)[mask].abs().max() < 1e-12 if mask.any() else True
    everything = build(replace(config, window=ids.shape[1]))
    unlimited = build(replace(config, window=None))
    assert (everything(ids, mask) - unlimited(ids, mask)).abs().max() < 1e-12


@EXAMPLES
@given(configs(), batches(), st.lists(st.integers(1, 12), min_size=4, max_size=4))
def test_packed_equals_padded(config: EncoderConfig, batch: tuple[Tensor, Tensor], numbers: list[int]) -> None:
    ids, _ = batch
    lengths = [min(n, ids.shape[1]) for n in numbers[: ids.shape[0]]]
    mask = masks.from_lengths(torch.tensor(lengths), ids.shape[1])
    encoder = build(config)
    padded, packed = encoder(ids, mask), PackedEncoder(encoder)(ids, lengths=lengths)
    assert packed.shape == padded.shape
    assert (padded - packed).abs().max() < 1e-12
    probe = torch.randn_like(padded)
    one, other = gradients(encoder, (padded * probe).sum()), gradients(encoder, (packed * probe).sum())
    for first, second in zip(one, other, strict=True):
        assert (first - second).abs().max() < 1e-10 * max(1.0, float(first.abs().max()))


@EXAMPLES
@given(configs(), batches(), st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16]))
def test_finite_with_gradients(config: EncoderConfig, batch: tuple[Tensor, Tensor], dtype: torch.dtype) -> None:
    ids, mask = batch
    mask[0] = False  # a fully padded row
    encoder = build(config, dtype)
    out = encoder(ids, mask)
    assert out.dtype == dtype
    assert out.shape == (*ids.shape, config.d_model)
    assert out[~mask].eq(0).all()
    assert all(torch.isfinite(g).all() for g in [out, *gradients(encoder, out.float().square().sum())])
    four = encoder(ids, mask[:, None, None])
    assert all(torch.isfinite(g).all() for g in [four, *gradients(encoder, four.float().square().sum())])


@EXAMPLES
@given(configs(), batches())
def test_eval_is_deterministic_and_state_dict_round_trips(config: EncoderConfig, batch: tuple[Tensor, Tensor]) -> None:
    ids, mask = batch
    encoder = build(replace(config, dropout=0.5, attention_dropout=0.5, drop_path=0.5), torch.float32).eval()
    out = encoder(ids, mask)
    assert torch.equal(out, encoder(ids, mask))
    torch.manual_seed(1)
    copy = Encoder(encoder.config).eval()
    copy.load_state_dict(encoder.state_dict())
    assert torch.equal(out, copy(ids, mask))


@EXAMPLES
@given(configs(), batches())
def test_weights_are_the_attention_that_ran(config: EncoderConfig, batch: tuple[Tensor, Tensor]) -> None:
    ids, mask = batch
    encoder = build(config)
    all_weights = encoder.attention_weights(ids, mask)
    assert len(all_weights) == config.num_layers
    for weights in all_weights:
        assert weights.shape == (ids.shape[0], config.num_heads, ids.shape[1], ids.shape[1])
        assert weights.masked_select(~mask[:, None, None].expand_as(weights)).eq(0).all()
        total = weights.sum(-1)
        sees = masks.combine(
            mask,
            masks.causal(ids.shape[1])[None, None] if config.causal else None,
            masks.window(ids.shape[1], config.window)[None, None] if config.window else None,
        )
        assert sees is not None
        expected = sees.any(-1).expand_as(total).to(total.dtype)
        assert (total - expected).abs().max() < 1e-12


@EXAMPLES
@given(configs(), batches())
def test_checkpointing_changes_nothing(config: EncoderConfig, batch: tuple[Tensor, Tensor]) -> None:
    ids, mask = batch
    config = replace(config, dropout=0.3, attention_dropout=0.3, drop_path=0.3)
    results: list[list[Tensor]] = []
    for checkpointing in (False, True):
        encoder = build(replace(config, checkpointing=checkpointing)).train()
        torch.manual_seed(5)
        out = encoder(ids, mask)
        results.append([out, *gradients(encoder, out.square().sum())])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@settings(EXAMPLES, max_examples=25)
@given(configs())
def test_forward_reads_no_values(config: EncoderConfig) -> None:
    """On the meta device there are none: reading one, which would make a GPU's host wait, is an error."""
    with torch.device("meta"):
        encoder = Encoder(config)
        ids, mask = torch.zeros(2, 9, dtype=torch.long), torch.ones(2, 9, dtype=torch.bool)
        for each in (None, mask, mask[:, None, None]):
            assert encoder(ids, each).shape == (2, 9, config.d_model)


@pytest.mark.parametrize("attention", ["sdpa", "explicit"])
@pytest.mark.parametrize("position", ["none", "alibi"])
def test_window_memory_grows_linearly(attention: Any, position: Any) -> None:
    def kept(length: int, window: int | None) -> int:
        """How many numbers a training step keeps for its backward pass."""
        config = EncoderConfig(
            vocab_size=None, d_model=4, num_heads=1, num_layers=1, d_ff=4, window=window, attention=attention,
            position=position, dropout=0.0, attention_dropout=0.0,
        )  # fmt: skip
        storages: dict[int, int] = {}

        def pack(t: Tensor) -> Tensor:
            storages[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            out = Encoder(config)(inputs_embeds=torch.randn(1, length, 4))
        assert out.requires_grad
        return sum(storages.values())

    assert kept(1024, window=8) < 2.05 * kept(512, window=8)
    if attention == "explicit":
        assert kept(1024, window=None) > 3.5 * kept(512, window=None)


@pytest.mark.parametrize("explicit", [True, False])
def test_empty_rows_attend_to_nothing(explicit: bool) -> None:
    from encdoctor.reference.attention import Attention
    from encdoctor.reference.patterns import Dense

    config = EncoderConfig(d_model=8, num_heads=2, attention="explicit" if explicit else "sdpa", bias=False)
    attention = Attention(config).double().eval()
    x = torch.randn(2, 5, 8, dtype=torch.float64, requires_grad=True)
    mask = torch.ones(2, 2, 5, 5, dtype=torch.bool)
    mask[0] = False  # a fully padded sample
    mask[1, 0, 3] = False  # one query of one head
    out = attention(x, Dense(mask))
    assert out[0].eq(0).all()
    assert not out[1].eq(0).any()
    (gradient,) = torch.autograd.grad(out.square().sum(), x)
    assert torch.isfinite(gradient).all()
    assert gradient[0].eq(0).all()


def test_bad_configs_say_what_is_wrong() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"d_model": 10, "num_heads": 3}, "d_model .10. is not divisible by num_heads .3."),
        ({"num_layers": 0}, "num_layers must be at least 1"),
        ({"vocab_size": 0}, "vocab_size must be None or at least 1"),
        ({"position": "absolute"}, "position must be one of sinusoidal, learned"),
        ({"norm_placement": "sandwich"}, "norm_placement must be one of pre, post"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
        ({"norm_eps": 0.0}, "norm_eps must be above 0"),
        ({"token_types": -1}, "token_types must be at least 0"),
        ({"window": 0}, "window must be None or at least 1"),
        ({"position": "rotary", "head_dim": 5}, "head_dim must be even"),
        ({"position": "relative", "relative_buckets": 30}, "relative_buckets must be a multiple of 4"),
        ({"position": "relative", "relative_max_distance": 8}, "relative_max_distance .8. must be above 8"),
    ]
    for fields, message in cases:
        with pytest.raises(ValueError, match=message):
            EncoderConfig(**fields)


def test_bad_inputs_say_what_is_wrong() -> None:
    encoder = Encoder(EncoderConfig(d_model=8, num_heads=2, num_layers=1, d_ff=8, position="learned", max_length=6))
    ids = torch.zeros(2, 5, dtype=torch.long)
    with pytest.raises(ValueError, match=r"7 positions, but the learned table has max_length = 6"):
        encoder(torch.zeros(1, 7, dtype=torch.long))
    with pytest.raises(ValueError, match="either input_ids or inputs_embeds"):
        encoder()
    with pytest.raises(ValueError, match=r"must be \(B, S, 8\)"):
        encoder(inputs_embeds=torch.zeros(2, 5, 9))
    with pytest.raises(ValueError, match="no segment table"):
        encoder(ids, token_type_ids=ids)
    with pytest.raises(ValueError, match="no token table"):
        Encoder(replace(encoder.config, vocab_size=None))(ids)
    with pytest.raises(TypeError, match="must be boolean or 0/1 integers"):
        encoder(ids, torch.ones(2, 5))
    with pytest.raises(ValueError, match="insert the missing dimensions"):
        encoder(ids, torch.ones(2, 5, 5, dtype=torch.bool))
    for window in (None, 2):
        other = Encoder(replace(encoder.config, window=window))
        with pytest.raises(ValueError, match="does not broadcast"):
            other(ids, torch.ones(2, 4, dtype=torch.bool))


def test_bad_packs_say_what_is_wrong() -> None:
    packed = PackedEncoder(Encoder(EncoderConfig(d_model=8, num_heads=2, num_layers=1, d_ff=8, drop_path=0.1)))
    ids = torch.zeros(2, 5, dtype=torch.long)
    with pytest.raises(ValueError, match="drop_path skips whole samples"):
        packed(ids, lengths=[5, 4])
    for lengths in ([5], [5, 0], [5, 6]):
        with pytest.raises(ValueError, match="2 numbers from 1 to 5"):
            packed.eval()(ids, lengths=lengths)


def test_no_argument_needed() -> None:
    assert Encoder().config == EncoderConfig()
