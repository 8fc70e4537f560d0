"""How an encoder is called, as plain data: what was inferred, why, and how certain that is.

Nothing here runs a model: `encdoctor.lab.binding` finds the contract by trial calls, `encdoctor.lab.batches` builds
inputs from it. Axes are written as letters: B batch, S sequence, D features, H heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class InputKind(StrEnum):
    """What the main argument holds."""

    IDS = "ids"
    EMBEDDINGS = "embeddings"
    FEATURES = "features"
    PIXELS = "pixels"
    AUDIO = "audio"


class MaskMeaning(StrEnum):
    """What True, or 1, means in a mask; or what stands in a mask's place."""

    KEEP = "keep"
    DROP = "drop"
    ADDITIVE = "additive"
    LENGTHS = "lengths"
    PAD_ID = "pad_id"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class MaskContract:
    """How padding is told to the encoder.

    `argument` is None when padding is read off the ids themselves (`pad_id`). `layout` is the shape as axes,
    e.g. "BS", "B1S", "B11S", "BSS", "SB", "B" for lengths; `dtype` is "bool", "int64", "float" or "list".
    """

    argument: str | None
    true: MaskMeaning
    why: str
    certain: bool
    layout: str = "BS"
    dtype: str = "bool"
    required: bool = False
    pad_id: int | None = None


@dataclass(frozen=True)
class Extra:
    """A further required argument and what is passed for it.

    `like` says how it is made: "zeros", "ones" or "positions" in the shape of the ids, "content" (the main input once
    more), "lengths", or "value" (then `value` is passed as it is).
    """

    argument: str
    like: str
    why: str
    value: Any = None


@dataclass(frozen=True)
class CallContract:
    """How to call the encoder.

    `shape` is the input's shape, letters for axes that vary and numbers for those that do not: ("B", "S"),
    ("B", "S", 32), ("S", "B", 32), ("B", 3, 16, 16). `vocab` bounds ids (exclusive), `low` is the smallest id used
    for real tokens. `output` is the path to the tensor in what forward returns ("" for itself,
    ".last_hidden_state", "[0]", "['hidden']"); `output_axes` are its axes: "BSD", "SBD", "BD" (pooled or logits),
    "BDHW", …; `output_offset` is where the first input position stands along the output's sequence axis (1 behind a
    [CLS]), None when positions do not correspond. `max_length` is the longest sequence known to work, `lengths_tried`
    are lengths that ran, the one to use by default first. `avoid` are ids with a special meaning, never drawn. `pack`
    is the argument that takes all others as one dict. `raises` is what forward raised in its own code when it was
    called this way; then nothing was measured, and the contract rests on what is written.
    """

    input: InputKind
    argument: str
    shape: tuple[str | int, ...]
    why: str
    certain: bool = True
    vocab: int | None = None
    low: int = 0
    avoid: tuple[int, ...] = ()
    keyword: bool = True
    mask: MaskContract | None = None
    extras: tuple[Extra, ...] = ()
    output: str = ""
    output_axes: str = "BSD"
    output_offset: int | None = 0
    max_length: int | None = None
    lengths_tried: tuple[int, ...] = ()
    order_why: str = ""
    order_certain: bool = True
    output_why: str = ""
    pack: str | None = None
    raises: str = ""
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def batch_first(self) -> bool:
        """Whether the batch is the input's first axis."""
        return self.shape[0] == "B"

    @property
    def has_sequence(self) -> bool:
        """Whether the input has a sequence axis whose length can vary."""
        return "S" in self.shape

    @property
    def pooled(self) -> bool:
        """Whether the output has no sequence axis."""
        return "S" not in self.output_axes


_SAYS = {
    MaskMeaning.ADDITIVE: "added to the scores",
    MaskMeaning.LENGTHS: "lengths",
    MaskMeaning.PAD_ID: "pad id",
    MaskMeaning.UNKNOWN: "what True means is unknown",
}


def describe(contract: CallContract) -> str:
    """The contract in one line, with the option that overrides each part that is not certain."""
    parts = [_describe_input(contract), _describe_mask(contract.mask)]
    parts += [f"{e.argument} = {e.like if e.like != 'value' else repr(e.value)}" for e in contract.extras]
    where = f"at {contract.output}" if contract.output else "returned"
    parts.append(f"{_describe_output(contract)} {where}")
    if contract.raises:
        parts.append(f"forward raises {contract.raises}")
    return " · ".join(parts)


def _describe_input(contract: CallContract) -> str:
    shape = ", ".join(str(axis) for axis in contract.shape)
    text = f"{contract.input} ({shape}) as {contract.argument}"
    if contract.pack:
        text += f" in the dict {contract.pack}"
    if contract.vocab is not None:
        text += f", vocab {contract.vocab}"
    if not contract.certain:
        text += f" (not certain: {contract.why}; --input)"
    if not contract.order_certain:
        text += f" (axes not certain: {contract.order_why}; --batch-first or --batch-second)"
    return text


def _describe_output(contract: CallContract) -> str:
    if not contract.pooled:
        return "hidden states"
    return {2: "one vector a sample", 3: "a fixed number of vectors", 4: "feature maps"}.get(
        len(contract.output_axes), "output"
    )


def _describe_mask(mask: MaskContract | None) -> str:
    if mask is None:
        return "no mask"
    if mask.true is MaskMeaning.PAD_ID:
        text = f"id {mask.pad_id} is padding ({mask.why})"
        return text if mask.certain else f"{text}, not certain: --pad-id"
    if mask.true is MaskMeaning.LENGTHS:
        return f"{mask.argument} ({mask.dtype}) holds lengths ({mask.why})"
    shape = ", ".join(mask.layout)
    one = "True" if mask.dtype == "bool" else "1"
    says = _SAYS.get(mask.true, f"{one} {mask.true}s")
    text = f"{mask.argument} ({shape}) {mask.dtype}, {says} ({mask.why})"
    return text if mask.certain else f"{text}, not certain: --mask-true keep|drop|additive"


def contract_to_plain(contract: CallContract) -> dict[str, Any]:
    """The contract as it stands in a saved report."""
    mask = contract.mask
    return {
        "input": str(contract.input),
        "argument": contract.argument,
        "shape": list(contract.shape),
        "why": contract.why,
        "certain": contract.certain,
        "batch_first": contract.batch_first,
        "batch_why": contract.order_why,
        "batch_certain": contract.order_certain,
        "vocab": contract.vocab,
        "mask": None
        if mask is None
        else {
            "argument": mask.argument,
            "true": str(mask.true),
            "why": mask.why,
            "certain": mask.certain,
            "layout": mask.layout,
            "dtype": mask.dtype,
            "required": mask.required,
            "pad_id": mask.pad_id,
        },
        "extras": [{"argument": e.argument, "like": e.like, "why": e.why} for e in contract.extras],
        "output": contract.output,
        "output_axes": contract.output_axes,
        "output_offset": contract.output_offset,
        "output_why": contract.output_why,
        "max_length": contract.max_length,
        "pack": contract.pack,
        "raises": contract.raises,
        "notes": list(contract.notes),
        "line": describe(contract),
    }
