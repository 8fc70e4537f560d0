"""The call contract is found on encoders of many styles, each written here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from encdoctor.contract import CallContract, InputKind, MaskMeaning, contract_to_plain, describe
from encdoctor.lab.batches import make_call
from encdoctor.lab.binding.bind import bind
from encdoctor.lab.situations import Situation
from encdoctor.model import CannotJudge
from encdoctor.target import Origin

OWN = Origin("tests", None, False)
INSTALLED = Origin("somebody", None, True)
D = 16


def bound(model: nn.Module, origin: Origin = OWN, **overrides: Any) -> CallContract:
    torch.manual_seed(0)
    return bind(model, origin, overrides)


class Layers(nn.Module):
    """Two attention layers over (batch, time, D) with a bool mask, True at padding."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.ModuleList(nn.MultiheadAttention(D, 2, batch_first=True) for _ in range(2))
        self.norm = nn.LayerNorm(D)

    def forward(self, h: Tensor, pad: Tensor | None = None) -> Tensor:
        for attention in self.attention:
            h = self.norm(h + attention(h, h, h, key_padding_mask=pad, need_weights=False)[0])
        return h


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, D)
        self.places = nn.Embedding(50, D)
        self.layers = Layers()

    def hidden(self, ids: Tensor, pad: Tensor | None = None) -> Tensor:
        h: Tensor = self.layers(self.embed(ids) + self.places(torch.arange(ids.shape[1])), pad)
        return h


# ---- masks ---------------------------------------------------------------------------------------------------


class SaysKeep(Base):
    """ids: long (batch, time). mask: (batch, time), 1 at real tokens and 0 elsewhere."""

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.hidden(ids, None if mask is None else mask == 0)


class SaysNothing(Base):
    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.hidden(ids, None if mask is None else ~mask)


class SaysNothingAndDrops(Base):
    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.hidden(ids, mask)


class DocumentedOtherwise(Base):
    """mask: bool (batch, time), True = padding."""

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.hidden(ids, None if mask is None else ~mask)


class Ignores(Base):
    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.hidden(ids)


class Ranked(Base):
    """src_mask: (batch, 1, time) bool, True for tokens that may be attended to."""

    def forward(self, src: Tensor, src_mask: Tensor) -> Tensor:
        assert src_mask.dim() == 3
        return self.hidden(src, ~src_mask[:, 0])


class Additive(Base):
    """bias: (batch, 1, 1, time) float, 0 at tokens and -inf at padding, added to the scores."""

    def forward(self, ids: Tensor, bias: Tensor) -> Tensor:
        return self.hidden(ids, bias[:, 0, 0] < -1.0)


class Square(Base):
    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        if mask.shape != (*ids.shape, ids.shape[1]):
            raise ValueError("wants (batch, query, key)")
        return self.hidden(ids, ~mask[:, 0])


class Lengths(Base):
    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        return self.hidden(ids, torch.arange(ids.shape[1])[None] >= lengths[:, None])


class ListOfLengths(Base):
    def forward(self, ids: Tensor, lengths: list[int]) -> Tensor:
        assert isinstance(lengths, list)
        return self.hidden(ids, torch.tensor([[i >= n for i in range(ids.shape[1])] for n in lengths]))


class PadInside(Base):
    """ids: long (batch, time), the pad id is 3."""

    def forward(self, ids: Tensor) -> Tensor:
        return self.hidden(ids, ids == 3)


class PadByAttribute(Base):
    def __init__(self) -> None:
        super().__init__()
        self.pad_id = 2

    def forward(self, ids: Tensor) -> Tensor:
        return self.hidden(ids, ids.eq(self.pad_id))


class PadIgnored(Base):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, D, padding_idx=0)

    def forward(self, ids: Tensor) -> Tensor:
        return self.hidden(ids)


@pytest.mark.parametrize(
    ("model", "argument", "true", "layout", "dtype"),
    [
        (SaysKeep, "mask", "keep", "BS", "int64"),
        (SaysNothing, "mask", "keep", "BS", "bool"),
        (SaysNothingAndDrops, "mask", "drop", "BS", "bool"),
        (DocumentedOtherwise, "mask", "drop", "BS", "bool"),
        (Ranked, "src_mask", "keep", "B1S", "bool"),
        (Additive, "bias", "additive", "B11S", "float"),
        (Square, "mask", "keep", "BSS", "bool"),
        (Lengths, "lengths", "lengths", "B", "int64"),
        (ListOfLengths, "lengths", "lengths", "B", "list"),
    ],
)
def test_masks(model: type[nn.Module], argument: str, true: str, layout: str, dtype: str) -> None:
    mask = bound(model()).mask
    assert mask is not None
    assert (mask.argument, mask.true, mask.layout, mask.dtype) == (argument, true, layout, dtype)
    assert mask.certain


def test_a_mask_without_effect_and_without_words_is_unknown() -> None:
    mask = bound(Ignores()).mask
    assert mask is not None
    assert mask.true is MaskMeaning.UNKNOWN
    assert not mask.certain


class Scores(nn.Module):
    """Attention without heads, or with one axis for them, over scores that a mask is put on."""

    def __init__(self, heads: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, D)
        self.project = nn.Linear(D, 3 * D)
        self.heads = heads

    def put(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores.masked_fill(mask == 0, -1e9)

    def attend(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = self.project(self.embed(ids)).chunk(3, -1)
        if self.heads:
            q, k, v = (z.unflatten(-1, (2, -1)).transpose(1, 2) for z in (q, k, v))
        scores = q @ k.mT
        out = (scores if mask is None else self.put(scores, mask)).softmax(-1) @ v
        h: Tensor = out.transpose(1, 2).flatten(2) if self.heads else out
        return h


class HeadlessScores(Scores):
    def forward(self, src: Tensor, src_mask: Tensor) -> Tensor:
        return self.attend(src, src_mask)


class HeadedScores(Scores):
    def __init__(self) -> None:
        super().__init__(heads=True)

    def forward(self, src: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.attend(src, mask)


class AddedToScores(HeadedScores):
    def put(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores + mask


@pytest.mark.parametrize(
    ("model", "true", "layout"),
    [(HeadlessScores, "keep", "B1S"), (HeadedScores, "keep", "B11S"), (AddedToScores, "additive", "B11S")],
)
def test_masks_that_nobody_documented(model: type[nn.Module], true: str, layout: str) -> None:
    mask = bound(model()).mask
    assert mask is not None
    assert (mask.true, mask.layout) == (true, layout)
    assert "tried" in mask.why


@pytest.mark.parametrize(("model", "pad_id"), [(PadInside, 3), (PadByAttribute, 2), (PadIgnored, 0)])
def test_pad_id(model: type[nn.Module], pad_id: int) -> None:
    mask = bound(model()).mask
    assert mask is not None
    assert (mask.argument, mask.true, mask.pad_id) == (None, MaskMeaning.PAD_ID, pad_id)


def test_an_installed_model_that_mixes_padding_in_has_no_mask() -> None:
    contract = bound(PadIgnored(), INSTALLED)
    assert contract.mask is None
    assert "padding_idx=0" in contract.notes[0]


# ---- inputs --------------------------------------------------------------------------------------------------


class Floats(nn.Module):
    """x: float (batch, time, channels)."""

    def __init__(self, channels: int = 6) -> None:
        super().__init__()
        self.lift = nn.Linear(channels, D)
        self.layers = Layers()

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.layers(self.lift(x))
        return h


class RawWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(33, D))
        self.layers = Layers()

    def forward(self, tokens: Tensor) -> Tensor:
        h: Tensor = self.layers(self.table[tokens])
        return h


class ChannelsFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(5, D, 3, padding=1)
        self.layers = Layers()

    def forward(self, signal: Tensor) -> Tensor:
        h: Tensor = self.layers(self.conv(signal).transpose(1, 2))
        return h


class Audio(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, D, 10, 5)
        self.layers = Layers()

    def forward(self, wave: Tensor) -> Tensor:
        h: Tensor = self.layers(self.conv(wave[:, None]).transpose(1, 2))
        return h


class Vision(nn.Module):
    def __init__(self, image_size: int = 24) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, D, 8, 8)
        self.cls = nn.Parameter(torch.randn(1, 1, D))
        self.places = nn.Parameter(torch.randn(1, (image_size // 8) ** 2 + 1, D))
        self.layers = Layers()

    def forward(self, img: Tensor) -> Tensor:
        h = self.patch(img).flatten(2).transpose(1, 2)
        h = torch.cat([self.cls.expand(len(h), -1, -1), h], 1) + self.places
        out: Tensor = self.layers(h)
        return out


class Video(nn.Module):
    """clip: float (batch, frames, patches, pixels)."""

    def __init__(self, frames: int = 4, patches: int = 9, pixels: int = 12) -> None:
        super().__init__()
        self.lift = nn.Linear(pixels, D)
        self.places = nn.Parameter(torch.randn(1, frames, patches, D))
        self.layers = Layers()

    def forward(self, clip: Tensor) -> Tensor:
        h: Tensor = self.layers((self.lift(clip) + self.places).flatten(1, 2))
        return h


class FixedLength(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lift = nn.Linear(3, D)
        self.layers = Layers()

    def forward(self, series: Tensor) -> Tensor:
        if series.shape[1] != 20:
            raise ValueError(f"expects a series of length 20, got {series.shape[1]}")
        h: Tensor = self.layers(self.lift(series))
        return h


class OneHot(nn.Module):
    def __init__(self, n_symbols: int = 11) -> None:
        super().__init__()
        self.n_symbols = n_symbols
        self.lift = nn.Linear(n_symbols, D)
        self.layers = Layers()

    def forward(self, tokens: Tensor) -> Tensor:
        h: Tensor = self.layers(self.lift(nn.functional.one_hot(tokens, self.n_symbols).float()))
        return h


class InBlocks(Floats):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] % 8:
            raise ValueError("the length must be a multiple of 8")
        return super().forward(x)


class KeywordOnly(Base):
    def forward(self, *, input_ids: Tensor, verbose: bool = False) -> Tensor:
        return self.hidden(input_ids)


class PositionalOnly(Base):
    def forward(self, ids: Tensor, /) -> Tensor:
        return self.hidden(ids)


class NeedsMore(Base):
    """tokens, segments: long (batch, time)."""

    def forward(self, tokens: Tensor, segments: Tensor, position_ids: Tensor, training: bool) -> Tensor:
        h: Tensor = self.layers(self.embed(tokens) + self.embed(segments) + self.places(position_ids))
        return h


class OneDict(Base):
    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return self.hidden(batch["input_ids"], batch["attention_mask"] == 0)


class PassesOn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lift = nn.Linear(7, D)
        self.inner = Layers()

    def forward(self, x: Tensor, **kwargs: Any) -> Tensor:
        h: Tensor = self.inner(self.lift(x), **kwargs)
        return h


@pytest.mark.parametrize(
    ("model", "kind", "argument", "shape"),
    [
        (Floats, "features", "x", ("B", "S", 6)),
        (SaysKeep, "ids", "ids", ("B", "S")),
        (RawWeights, "ids", "tokens", ("B", "S")),
        (ChannelsFirst, "features", "signal", ("B", 5, "S")),
        (Audio, "audio", "wave", ("B", "S")),
        (Vision, "pixels", "img", ("B", 3, 24, 24)),
        (Video, "features", "clip", ("B", 4, 9, 12)),
        (FixedLength, "features", "series", ("B", 20, 3)),
        (OneHot, "ids", "tokens", ("B", "S")),
        (InBlocks, "features", "x", ("B", "S", 6)),
        (KeywordOnly, "ids", "input_ids", ("B", "S")),
        (PositionalOnly, "ids", "ids", ("B", "S")),
        (NeedsMore, "ids", "tokens", ("B", "S")),
        (OneDict, "ids", "input_ids", ("B", "S")),
        (PassesOn, "features", "x", ("B", "S", 7)),
    ],
)
def test_inputs(model: type[nn.Module], kind: str, argument: str, shape: tuple[Any, ...]) -> None:
    contract = bound(model())
    assert (contract.input, contract.argument, contract.shape) == (kind, argument, shape)
    length = contract.lengths_tried[0]
    call = make_call(contract, Situation(lengths=(length,) * 3, length=length, dtype="float32"))
    model()(*call.args, **call.kwargs)


def test_the_vocabulary_is_what_the_ids_index() -> None:
    assert bound(SaysKeep()).vocab == 40
    assert bound(RawWeights()).vocab == 33
    assert bound(OneHot()).vocab == 11


def test_further_arguments() -> None:
    extras = {e.argument: e.like for e in bound(NeedsMore()).extras}
    assert extras == {"segments": "zeros", "position_ids": "positions", "training": "value"}


def test_keywords_reach_the_submodule() -> None:
    mask = bound(PassesOn()).mask
    assert mask is not None
    assert (mask.argument, mask.true) == ("pad", MaskMeaning.DROP)


def test_a_dict_holds_the_mask_too() -> None:
    contract = bound(OneDict())
    assert contract.pack == "batch"
    assert contract.mask is not None
    assert contract.mask.argument == "attention_mask"


# ---- batch order ---------------------------------------------------------------------------------------------


class SequenceFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, D)
        self.layer = nn.TransformerEncoderLayer(D, 2, 32)

    def forward(self, src: Tensor) -> Tensor:
        h: Tensor = self.layer(self.embed(src))
        return h


class SaysBatchFirst(SequenceFirst):
    """src: (batch, time) ids."""


class Turns(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(D, 2, 32)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.layer(x.transpose(0, 1)).transpose(0, 1)
        return h


class ZeroGate(nn.Module):
    """A residual weight of zero: nothing mixes before training."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(1))
        self.layer = nn.TransformerEncoderLayer(D, 2, 32)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = x + self.gate * self.layer(x)
        return h


@pytest.mark.parametrize(
    ("model", "batch_first"), [(SequenceFirst, False), (SaysBatchFirst, True), (Turns, True), (ZeroGate, False)]
)
def test_order(model: type[nn.Module], batch_first: bool) -> None:
    contract = bound(model())
    assert contract.batch_first is batch_first
    assert contract.output_axes == ("BSD" if batch_first else "SBD")


def test_a_disagreement_is_noted_and_the_documented_order_kept() -> None:
    contract = bound(SaysBatchFirst())
    assert contract.batch_first
    assert "the other way round" in contract.notes[0]


@pytest.mark.parametrize("batch_first", [True, False])
def test_torch_encoder(batch_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(D, 2, 32, batch_first=batch_first)
    contract = bound(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    assert contract.input is InputKind.EMBEDDINGS
    assert contract.batch_first is batch_first
    assert contract.mask is not None
    assert (contract.mask.argument, contract.mask.true) == ("src_key_padding_mask", MaskMeaning.DROP)


# ---- outputs -------------------------------------------------------------------------------------------------


@dataclass
class Output:
    pooled: Tensor
    last_hidden_state: Tensor


class Pair(NamedTuple):
    states: Tensor
    weights: Tensor


class InDataclass(Base):
    def forward(self, ids: Tensor) -> Output:
        h = self.hidden(ids)
        return Output(h[:, 0], h)


class InTuple(Base):
    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        h = self.hidden(ids)
        return h[:, 0], h


class InDict(Base):
    def forward(self, ids: Tensor) -> dict[str, Tensor]:
        h = self.hidden(ids)
        return {"logits": h[:, 0], "hidden": h}


class InNamedTuple(Base):
    def forward(self, ids: Tensor) -> Pair:
        h = self.hidden(ids)
        return Pair(h, h @ h.mT)


class InLayers(Base):
    def forward(self, ids: Tensor) -> list[Tensor]:
        h = self.hidden(ids)
        return [h, 2 * h, 3 * h]


class Pooled(Base):
    def forward(self, ids: Tensor) -> Tensor:
        return self.hidden(ids).mean(1)


class Prepended(Base):
    def forward(self, ids: Tensor) -> Tensor:
        return self.hidden(torch.cat([torch.ones_like(ids[:, :1]), ids], 1))


class Halved(Base):
    def forward(self, ids: Tensor) -> Tensor:
        return self.hidden(ids)[:, ::2]


@pytest.mark.parametrize(
    ("model", "path", "axes", "offset"),
    [
        (InDataclass, ".last_hidden_state", "BSD", 0),
        (InTuple, "[1]", "BSD", 0),
        (InDict, "['hidden']", "BSD", 0),
        (InNamedTuple, ".states", "BSD", 0),
        (InLayers, "[2]", "BSD", 0),
        (Pooled, "", "BD", None),
        (Prepended, "", "BSD", 1),
        (Halved, "", "BSD", None),
        (Vision, "", "BSD", None),
    ],
)
def test_outputs(model: type[nn.Module], path: str, axes: str, offset: int | None) -> None:
    contract = bound(model())
    assert (contract.output, contract.output_axes, contract.output_offset) == (path, axes, offset)


def test_the_longest_length_is_tried() -> None:
    assert bound(SaysKeep()).max_length == 50
    assert bound(Floats()).max_length is None
    assert bound(InBlocks()).max_length is None
    assert bound(InBlocks()).lengths_tried == (16, 32)


# ---- overrides, faults, restoring ----------------------------------------------------------------------------


def test_what_is_given_wins() -> None:
    mask = bound(SaysKeep(), mask_true="drop").mask
    assert mask is not None
    assert (mask.true, mask.why) == (MaskMeaning.DROP, "given")
    assert bound(InTuple(), output="[0]").output_axes == "BD"
    assert bound(SaysBatchFirst(), batch_first=False).batch_first is False
    pad = bound(PadInside(), pad_id=7).mask
    assert pad is not None
    assert pad.pad_id == 7


class BadView(Base):
    """ids: (batch, time), 0 = padding."""

    def forward(self, ids: Tensor) -> Tensor:
        return self.hidden(ids).transpose(1, 2).view(ids.shape[0], -1)


class BadMask(Base):
    """mask: int64 (batch, time), 1 = token."""

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        h = self.hidden(ids)
        return h if mask is None else h.masked_fill(~mask[:, None, :, None], 0.0)


def test_a_forward_that_raises_in_its_own_code_still_has_a_contract() -> None:
    contract = bound(BadView())
    assert (contract.argument, contract.shape) == ("ids", ("B", "S"))
    assert contract.raises.startswith("RuntimeError: view size")
    assert contract.mask is not None
    assert contract.mask.pad_id == 0


def test_a_mask_that_raises_is_noted() -> None:
    contract = bound(BadMask())
    assert contract.mask is not None
    assert contract.mask.dtype == "int64"
    assert "mask" in contract.notes[0]
    assert contract.output_offset == 0


class NoTensor(Base):
    def forward(self, ids: Tensor) -> str:
        return str(self.hidden(ids).shape)


class Refuses(nn.Module):
    def forward(self, anything: Any) -> Tensor:
        raise TypeError("wants a graph")


@pytest.mark.parametrize("model", [NoTensor, Refuses])
def test_no_call(model: type[nn.Module]) -> None:
    with pytest.raises(CannotJudge, match="--"):
        bound(model())


class Counts(Base):
    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, ids: Tensor) -> Tensor:
        self.calls += 1
        return self.hidden(ids) + 0 * torch.rand(1)


class NoCopy(Counts):
    def __deepcopy__(self, memo: Any) -> NoCopy:
        raise RuntimeError("cannot be copied")


@pytest.mark.parametrize("kind", [Counts, NoCopy])
def test_nothing_is_left_behind(kind: type[Counts]) -> None:
    model = kind().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    bind(model, OWN, {})
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks for module in model.modules())


# ---- for people and for files --------------------------------------------------------------------------------


def test_one_line() -> None:
    assert describe(bound(SaysKeep())) == (
        "ids (B, S) as ids, vocab 40 · mask (B, S) int64, 1 keeps (docstring of SaysKeep) · hidden states returned"
    )
    assert "--mask-true" in describe(bound(Ignores()))


def test_plain() -> None:
    plain = contract_to_plain(bound(InDict()))
    assert plain["output"] == "['hidden']"
    assert plain["batch_first"] is True
    assert contract_to_plain(bound(Lengths()))["mask"]["true"] == "lengths"


def test_hugging_face() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=60,
        hidden_size=D,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=40,
    )
    contract = bound(transformers.BertModel(config), INSTALLED)
    assert (contract.argument, contract.vocab, contract.output) == ("input_ids", 60, ".last_hidden_state")
    assert contract.mask is not None
    assert (contract.mask.argument, contract.mask.true) == ("attention_mask", MaskMeaning.KEEP)
    assert contract.max_length == 40
