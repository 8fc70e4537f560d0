"""Finds out how an encoder is called: candidates with reasons, small trial calls, a verdict.

What is written (options, documentation, signature, names) comes first, behaviour second; where the two disagree the
documented reading is kept and the disagreement noted: it may be the fault that is looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from encdoctor.contract import CallContract, InputKind, MaskContract, MaskMeaning
from encdoctor.lab.binding import masks, outputs
from encdoctor.lab.binding.candidates import Roles, read_model, sort_arguments
from encdoctor.lab.binding.inputs import bind_input, mask_variants
from encdoctor.lab.binding.lengths import find_lengths, lengthened
from encdoctor.lab.binding.order import settle_order
from encdoctor.lab.binding.sizes import known_sizes, vocab_guess
from encdoctor.lab.binding.trials import Bench, Tried, text_of
from encdoctor.lab.outputs import pick
from encdoctor.model import CannotJudge
from encdoctor.signatures import Reading
from encdoctor.target import Origin

UNKNOWN_VOCABULARY = "vocabulary unknown: only ids below 4 are used"


def bind(
    model: nn.Module,
    origin: Origin,
    overrides: Mapping[str, Any] | None = None,
    device: str = "cpu",
    on_enter: Callable[[str], None] | None = None,
) -> CallContract:
    """How `model` is called; `on_enter` is told each module that a trial call enters.

    Raises `CannotJudge` where no call gets into the model.
    """
    given = {name: value for name, value in (overrides or {}).items() if value is not None}
    reading = read_model(model)
    if reading.arguments == () and not reading.takes_any:
        raise CannotJudge(f"{type(model).__name__}.forward takes no input that could be tried")
    roles = sort_arguments(model, reading)
    with Bench(model, device, on_enter).open() as bench:
        tried, variants = bind_input(bench, reading, roles, given)
        contract = tried.contract
        if contract.input is InputKind.IDS:
            contract = _with_vocabulary(bench, model, contract, tried.length)
        contract = settle_order(bench, reading, contract, tried, given)
        if not tried.ran:
            return _unfinished(model, bench, reading, roles, contract, tried, variants, given)
        contract = _with_output(bench, contract, tried, given)
        contract = find_lengths(bench, contract, tried.length, known_sizes(model))
        tried = bench.attempt(contract, contract.lengths_tried[0])
        contract = outputs.read_axes(bench, contract, tried)
        contract = lengthened(bench, contract, outputs.positions(contract, tried))
        contract = _naming_embeddings(contract, tried)
        contract = _with_mask(bench, model, origin, reading, roles, contract, variants, given)
        offset = outputs.measure_offset(bench, contract, contract.lengths_tried[0])
        return replace(contract, output_offset=offset)


def _with_vocabulary(bench: Bench, model: nn.Module, contract: CallContract, length: int) -> CallContract:
    """The vocabulary from the tables that the ids index; otherwise by name, if the largest id then runs."""
    tables = bench.tables(contract, length)
    guess = min(tables) if tables else vocab_guess(model, known_sizes(model))
    if guess is None:
        return replace(contract, notes=(*contract.notes, UNKNOWN_VOCABULARY), certain=False)
    low = 5 if guess >= 24 else 1 if guess >= 4 else 0
    fuller = replace(contract, vocab=guess, low=low, avoid=masks.special_ids(model, guess))
    if tables or bench.attempt(fuller, length).ran:
        return fuller
    return replace(contract, notes=(*contract.notes, UNKNOWN_VOCABULARY), certain=False)


# ---- the output ----------------------------------------------------------------------------------------------


def _with_output(bench: Bench, contract: CallContract, tried: Tried, given: Mapping[str, Any]) -> CallContract:
    found = outputs.locate(tried, given.get("output"))
    if found is None:
        raise CannotJudge(f"{type(bench.original).__name__}.forward returns no tensor; name it with --output")
    try:
        pick(tried.output, found[0])
    except (KeyError, IndexError, AttributeError, TypeError) as error:
        there = ", ".join(repr(t.path) for t in outputs.tensors_in(tried.output)) or "none"
        raise CannotJudge(
            f"--output {given.get('output')!r} leads to no tensor ({error}); tensors are at: {there}"
        ) from error
    return replace(contract, output=found[0], output_why=found[1])


def _naming_embeddings(contract: CallContract, tried: Tried) -> CallContract:
    """Floats as wide as what comes out, and not called features anywhere, are embeddings."""
    if contract.input is not InputKind.FEATURES or not contract.has_sequence or len(contract.shape) != 3:
        return contract
    named = "docstring" in contract.why and "no embedding" in contract.why
    output = pick(tried.output, contract.output)
    if named or output.dim() != 3 or output.shape[-1] != contract.shape[-1]:
        return contract
    return replace(contract, input=InputKind.EMBEDDINGS)


# ---- the mask ------------------------------------------------------------------------------------------------


def _with_mask(
    bench: Bench,
    model: nn.Module,
    origin: Origin,
    reading: Reading,
    roles: Roles,
    contract: CallContract,
    variants: list[MaskContract],
    given: Mapping[str, Any],
) -> CallContract:
    if not contract.has_sequence:
        return replace(contract, mask=contract.mask if contract.mask and contract.mask.required else None)
    if contract.pack:
        packed = [contract.mask] if contract.mask else []
        variants = [replace(mask, dtype=dtype) for mask in packed for dtype in ("int64", "bool", "float")]
    names = {m.argument for m in variants if m.argument}
    pad = masks.pad_id_of(bench, model, contract, reading, names, given)
    length = contract.lengths_tried[0]
    if not variants or (given.get("pad_id") is not None and not given.get("mask_arg")):
        return _with_pad_id(bench, origin, contract, pad, length)
    if pad is not None:
        contract = replace(contract, avoid=tuple(sorted({*contract.avoid, pad[0]})))
    if not contract.batch_first:
        variants = mask_variants(reading, roles, given, batch_first=False)
    mask, note = masks.bind_mask(bench, contract, variants, length, masks.is_explicit(reading, variants[0].argument))
    if note:
        return replace(contract, mask=mask, notes=(*contract.notes, note))
    if mask.true is not MaskMeaning.LENGTHS and not mask.certain:
        mask = masks.judge(bench, contract, mask, length)
    return replace(contract, mask=mask)


def _with_pad_id(
    bench: Bench, origin: Origin, contract: CallContract, pad: tuple[int, str, bool] | None, length: int
) -> CallContract:
    if pad is None:
        return replace(contract, mask=None)
    pad_id, why, certain = pad
    mask = MaskContract(None, MaskMeaning.PAD_ID, why, certain, "BS", "int64", False, pad_id)
    if certain:
        return replace(contract, mask=mask)
    if masks.honours_pad_id(bench, replace(contract, mask=mask), length):
        return replace(contract, mask=replace(mask, why=f"{why}, tried: more padding changes nothing", certain=True))
    if origin.installed:
        # unknown intent in somebody else's package is no fault: FNet has a padding_idx and mixes everything by design
        return replace(contract, mask=None, notes=(*contract.notes, f"{why}, but forward does not mask that id"))
    return replace(contract, mask=mask)


def _unfinished(
    model: nn.Module,
    bench: Bench,
    reading: Reading,
    roles: Roles,
    contract: CallContract,
    tried: Tried,
    variants: list[MaskContract],
    given: Mapping[str, Any],
) -> CallContract:
    """The contract of a forward that raises in its own code: what is written, nothing measured."""
    assert tried.error is not None
    pad = masks.pad_id_of(bench, model, contract, reading, {m.argument for m in variants if m.argument}, given)
    mask = contract.mask or (variants[0] if variants else None)
    if mask is None and pad is not None:
        mask = MaskContract(None, MaskMeaning.PAD_ID, pad[1], pad[2], "BS", "int64", False, pad[0])
    axes = "".join(str(a) if a in ("B", "S") else "D" for a in contract.shape)
    axes = axes if "D" in axes else axes + "D"
    return replace(
        contract,
        mask=mask,
        output=given.get("output", ""),
        output_axes=axes if len(set(axes)) == len(axes) else "BSD",
        lengths_tried=(tried.length,),
        settings=_length_setting(tried.length),
        raises=text_of(tried.error),
    )


def _length_setting(length: int) -> dict[str, Any]:
    return {} if length == 13 else {"length": length}
