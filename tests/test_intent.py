"""What an author says is read where he says it, and a mention is no declaration."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from torch import nn

from encdoctor.intent import Intent, What, read_intent
from encdoctor.target import Origin

OWN = Origin("test_intent", None, False)


def intent(model: nn.Module, *options: str) -> Intent:
    return read_intent(model, OWN, options)


def said(doc: str, *options: str) -> Intent:
    """The intent of a class with that docstring."""
    cls = type("Encoder", (nn.Module,), {"__doc__": doc, "__module__": __name__})
    return intent(cls(), *options)


@pytest.mark.parametrize(
    ("doc", "what"),
    [
        ("Causal text tower.", What.CAUSAL),
        ("An autoregressive encoder over bytes.", What.CAUSAL),
        ("Left-to-right encoder.", What.CAUSAL),
        ("Sliding-window encoder.", What.WINDOW),
        ("Local attention: each step sees `reach` steps to each side.", What.WINDOW),
        ("Prefix encoder: bidirectional prefix, causal rest.", What.PREFIX),
        ("Prefix encoder: bidirectional prefix, causal rest.", What.CAUSAL),
        ("One layer is applied several times.", What.SHARED),
        ("All blocks share the same weights, as in ALBERT.", What.SHARED),
        ("The embeddings are frozen.", What.FROZEN),
        ("Set encoder, permutation invariant.", What.NO_POSITIONS),
        ("An encoder without positions.", What.NO_POSITIONS),
        ("Used with a tokenizer that pads on the left.", What.LEFT_PADDING),
        ("Served after `.half()`.", What.HALF),
    ],
)
def test_said(doc: str, what: What) -> None:
    assert said(doc).says(what)
    declared = said(doc).of(what)
    assert declared is not None
    assert declared.source.startswith('docstring of Encoder: "')


@pytest.mark.parametrize(
    ("doc", "what"),
    [
        ("A plain encoder.", What.CAUSAL),
        ("Not causal: every token sees every other.", What.CAUSAL),
        ("Bidirectional encoder.", What.CAUSAL),
        ("Encodes what the causal decoder reads.", What.CAUSAL),
        ("Behaves as an autoregressive model if `is_decoder` is set.", What.CAUSAL),
        ("Optionally causal.", What.CAUSAL),
        ("Encodes a window of observations.", What.WINDOW),
        ("Full attention, no sliding window.", What.WINDOW),
        ("Backbone shared by all our tasks.", What.SHARED),
        ("The layers do not share weights.", What.SHARED),
        ("Attention with one shared value projection.", What.SHARED),
        ("Nothing is frozen here, never frozen.", What.LEFT_PADDING),
    ],
)
def test_only_mentioned(doc: str, what: What) -> None:
    assert not said(doc).says(what)


def test_a_denial_is_a_declaration() -> None:
    for doc in ("Bidirectional encoder.", "A non-causal encoder."):
        declared = said(doc).of(What.CAUSAL)
        assert declared is not None
        assert declared.value is False


def test_which_half() -> None:
    def half(doc: str) -> object:
        declared = said(doc).of(What.HALF)
        return declared and declared.value

    assert half("May be cast with .bfloat16().") == "bfloat16"
    assert half("Runs in fp16.") == "float16"
    assert half("Casts to .half() or .bfloat16().") is True


@dataclass
class Config:
    width: int = 8
    window: int = 3  # each token sees this many neighbours
    prefix_len: int = 0
    num_groups: int = 1  # layers of one group share their weights
    causal: bool = True


class Attention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.window = config.window


class Configured(nn.Module):
    def __init__(self, freeze_embeddings: bool = True, padding_side: str = "left") -> None:
        super().__init__()
        self.config = Config()
        self.attention = Attention(self.config)


def test_values() -> None:
    found = intent(Configured())
    assert found.says(What.CAUSAL)
    window, frozen = found.of(What.WINDOW), found.of(What.FROZEN)
    assert window is not None
    assert (window.value, window.source) == (3, "window=3 in the configuration")
    assert frozen is not None
    assert frozen.value == "embeddings"
    assert "signature" in frozen.source
    assert found.says(What.LEFT_PADDING)
    assert found.says(What.SHARED)
    assert not found.says(What.PREFIX)


class SeriesEncoder(nn.Module):
    """Encodes the last hours of a series."""

    def __init__(self, window: int = 24) -> None:
        super().__init__()
        self.window = window


def test_a_window_that_no_attention_reads_is_an_input_length() -> None:
    assert intent(SeriesEncoder()).of(What.WINDOW) is None


class Part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.is_causal = True


class Whole(nn.Module):
    """Bidirectional text encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.part = Part()


class Silent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = Part()


def test_the_whole_speaks_before_its_parts() -> None:
    assert not intent(Whole()).says(What.CAUSAL)
    assert intent(Silent()).says(What.CAUSAL)


class CausalEncoder(nn.Module):
    pass


def test_a_class_name_counts_last() -> None:
    assert intent(CausalEncoder()).says(What.CAUSAL)


def test_options_win() -> None:
    found = said("Bidirectional encoder.", "causal", "window=4", "not-shared")
    assert found.says(What.CAUSAL)
    window = found.of(What.WINDOW)
    assert window is not None
    assert window.value == 4
    assert not found.says(What.SHARED)


def test_the_docs_of_torch_are_nobodys_intent() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    assert not intent(nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)).says(What.CAUSAL)


def test_installed_is_told() -> None:
    assert read_intent(Silent(), Origin("test_intent", None, True), ()).installed
