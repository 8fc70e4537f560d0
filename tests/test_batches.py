"""Arguments are made as the contract says, the same for the same situation."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from encdoctor.contract import CallContract, Extra, InputKind, MaskContract, MaskMeaning
from encdoctor.lab.batches import make_call
from encdoctor.lab.situations import Situation

IDS = CallContract(InputKind.IDS, "ids", ("B", "S"), "test", vocab=20, low=3, avoid=(5,))
FLOATS = CallContract(InputKind.FEATURES, "x", ("B", "S", 4), "test")
SITUATION = Situation(lengths=(7, 4, 2), length=7, dtype="float32")
KEEP = torch.tensor([[i < n for i in range(7)] for n in (7, 4, 2)])


def mask(**changes: object) -> MaskContract:
    return replace(MaskContract("m", MaskMeaning.KEEP, "test", True), **changes)  # type: ignore[arg-type]


def test_ids_are_ordinary() -> None:
    contract = replace(IDS, mask=MaskContract(None, MaskMeaning.PAD_ID, "test", True, pad_id=9))
    call = make_call(contract, replace(SITUATION, lengths=(7,) * 200))
    ids = call.kwargs["ids"]
    assert set(ids.unique().tolist()) == set(range(3, 20)) - {5, 9}


def test_the_same_situation_gives_the_same_bits() -> None:
    one, two = make_call(FLOATS, SITUATION), make_call(FLOATS, SITUATION)
    assert torch.equal(one.content, two.content)
    assert not torch.equal(one.content, make_call(FLOATS, replace(SITUATION, seed=1)).content)


@pytest.mark.parametrize("contract", [IDS, FLOATS])
def test_only_what_is_replaced_changes(contract: CallContract) -> None:
    one = make_call(contract, SITUATION).content
    two = make_call(contract, replace(SITUATION, replaced=((1, 2),))).content
    other = make_call(contract, replace(SITUATION, padding_seed=1)).content
    changed = (one != two).reshape(3, 7, -1).any(-1)
    assert changed.nonzero().tolist() == [[1, 2]]
    assert not (one != other).reshape(3, 7, -1).any(-1)[KEEP].any()


def test_pad_ids_stand_at_padding() -> None:
    contract = replace(IDS, mask=MaskContract(None, MaskMeaning.PAD_ID, "test", True, pad_id=0))
    call = make_call(contract, SITUATION)
    assert torch.equal(call.content == 0, ~KEEP)
    assert set(call.kwargs) == {"ids"}


@pytest.mark.parametrize(
    ("layout", "shape"),
    [
        ("BS", (3, 7)),
        ("SB", (7, 3)),
        ("B1S", (3, 1, 7)),
        ("B11S", (3, 1, 1, 7)),
        ("BS1", (3, 7, 1)),
        ("BSS", (3, 7, 7)),
        ("B1SS", (3, 1, 7, 7)),
        ("1SB", (1, 7, 3)),
        ("1BS", (1, 3, 7)),
    ],
)
def test_layouts(layout: str, shape: tuple[int, ...]) -> None:
    value = make_call(replace(FLOATS, mask=mask(layout=layout)), SITUATION).kwargs["m"]
    assert value.shape == shape
    if layout.count("S") == 2:
        assert torch.equal(value.reshape(3, 7, 7)[:, 0], KEEP)
    elif layout.index("S") > layout.index("B"):
        assert torch.equal(value.reshape(3, 7), KEEP)
    else:
        assert torch.equal(value.reshape(7, 3).t(), KEEP)


@pytest.mark.parametrize(
    ("dtype", "expected"), [("bool", torch.bool), ("int64", torch.int64), ("float", torch.float32)]
)
@pytest.mark.parametrize("true", [MaskMeaning.KEEP, MaskMeaning.DROP])
def test_dtypes_and_meanings(dtype: str, expected: torch.dtype, true: MaskMeaning) -> None:
    value = make_call(replace(FLOATS, mask=mask(dtype=dtype, true=true)), SITUATION).kwargs["m"]
    assert value.dtype is expected
    assert torch.equal(value.bool(), KEEP if true is MaskMeaning.KEEP else ~KEEP)


def test_additive() -> None:
    value = make_call(replace(FLOATS, mask=mask(true=MaskMeaning.ADDITIVE, dtype="float")), SITUATION).kwargs["m"]
    assert torch.equal(value == 0, KEEP)
    assert value.min() == torch.finfo(torch.float32).min


def test_lengths() -> None:
    lengths = mask(true=MaskMeaning.LENGTHS, layout="B")
    assert make_call(replace(FLOATS, mask=lengths), SITUATION).kwargs["m"].tolist() == [7, 4, 2]
    assert make_call(replace(FLOATS, mask=replace(lengths, dtype="list")), SITUATION).kwargs["m"] == [7, 4, 2]


def test_a_mask_is_left_out_where_it_is_not_wanted_and_may_be() -> None:
    unmasked = replace(SITUATION, masked=False)
    assert make_call(replace(FLOATS, mask=mask()), unmasked).kwargs.keys() == {"x"}
    assert make_call(replace(FLOATS, mask=mask(required=True)), unmasked).kwargs["m"].all()


def test_sequence_first_and_channels_first() -> None:
    assert make_call(replace(FLOATS, shape=("S", "B", 4)), SITUATION).content.shape == (7, 3, 4)
    channels = replace(FLOATS, shape=("B", 4, "S"))
    one = make_call(channels, SITUATION).content
    two = make_call(channels, replace(SITUATION, padding_seed=1)).content
    assert torch.equal((one == two).all(1), KEEP)


def test_further_arguments_one_dict_and_positions() -> None:
    extras = (
        Extra("segments", "zeros", ""),
        Extra("places", "positions", ""),
        Extra("flag", "value", "", False),
        Extra("n", "lengths", ""),
        Extra("again", "content", ""),
        Extra("ones", "ones", ""),
    )
    call = make_call(replace(IDS, extras=extras, pack="batch"), SITUATION)
    assert call.kwargs == {}
    values = call.args[0]
    assert values["places"][1].tolist() == list(range(7))
    assert values["segments"].sum() == 0
    assert values["n"].tolist() == [7, 4, 2]
    assert values["flag"] is False
    assert torch.equal(values["again"], values["ids"])
    with pytest.raises(ValueError, match="unknown"):
        make_call(replace(IDS, extras=(Extra("x", "magic", ""),)), SITUATION)


def test_left_padding() -> None:
    call = make_call(replace(IDS, mask=mask()), replace(SITUATION, side="left"))
    assert torch.equal(call.keep, KEEP.flip(1))


def test_not_contiguous() -> None:
    call = make_call(FLOATS, replace(SITUATION, contiguous=False))
    assert not call.content.is_contiguous()
    assert torch.equal(call.content, make_call(FLOATS, SITUATION).content)
