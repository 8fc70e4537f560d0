"""Finds out how an encoder is called: candidates with reasons, small trial calls, a verdict.

What is written (options, documentation, signature, names) comes first, behaviour second; where the two disagree the
documented reading is kept and the disagreement noted: it may be the fault that is looked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from encdoctor.contract import CallContract, InputKind, MaskContract, MaskMeaning
from encdoctor.lab import binding_masks as masks
from encdoctor.lab import binding_outputs as outputs
from encdoctor.lab.binding_candidates import (
    Roles,
    bare_contract,
    fill_extras,
    input_candidates,
    read_model,
    sort_arguments,
)
from encdoctor.lab.binding_lengths import find_lengths, lengthened, repaired, usual_lengths
from encdoctor.lab.binding_order import settle_order
from encdoctor.lab.binding_sizes import known_sizes, vocab_guess
from encdoctor.lab.binding_trials import Bench, Tried, text_of
from encdoctor.lab.outputs import pick
from encdoctor.model import CannotJudge
from encdoctor.signatures import Reading
from encdoctor.target import Origin

MOST_CANDIDATES = 14
# So many operations in, an exception is the model's own and not a refusal of the call.
OWN_FAULT = 3
MOST_REPAIRS = 8
MOST_MASKS = 14
MOST_CALLS = 200


def bind(
    model: nn.Module, origin: Origin, overrides: Mapping[str, Any] | None = None, device: str = "cpu"
) -> CallContract:
    """How `model` is called. Raises `CannotJudge` where no call gets into the model."""
    given = {name: value for name, value in (overrides or {}).items() if value is not None}
    reading = read_model(model)
    if reading.arguments == () and not reading.takes_any:
        raise CannotJudge(f"{type(model).__name__}.forward takes no input that could be tried")
    roles = sort_arguments(model, reading)
    with Bench(model, device).open() as bench:
        tried, mask_variants = _bind_input(bench, reading, roles, given)
        contract = tried.contract
        if contract.input is InputKind.IDS:
            contract = _with_vocabulary(bench, model, contract, tried.length)
        contract = settle_order(bench, reading, contract, tried, given)
        if not tried.ran:
            return _unfinished(model, bench, reading, roles, contract, tried, mask_variants, given)
        contract = _with_output(bench, contract, tried, given)
        contract = find_lengths(bench, contract, tried.length, known_sizes(model))
        tried = bench.attempt(contract, contract.lengths_tried[0])
        contract = outputs.read_axes(bench, contract, tried)
        contract = lengthened(bench, contract, outputs.positions(contract, tried))
        contract = _naming_embeddings(contract, tried)
        contract = _with_mask(bench, model, origin, reading, roles, contract, mask_variants, given)
        offset = outputs.measure_offset(bench, contract, contract.lengths_tried[0])
        return replace(contract, output_offset=offset)


# ---- the input -----------------------------------------------------------------------------------------------


def _bind_input(
    bench: Bench, reading: Reading, roles: Roles, given: Mapping[str, Any]
) -> tuple[Tried, list[MaskContract]]:
    """The first candidate that runs, or the one that got furthest; and the mask's variants."""
    variants = _mask_variants(reading, roles, given, batch_first=True)
    required = next((m for m in variants if m.required), None)
    best: Tried | None = None
    best_rank = (-1.0, -1)
    count = 0
    for candidate in input_candidates(bench.original, reading, roles, given)[:MOST_CANDIDATES]:
        contract = bare_contract(candidate, reading, fill_extras(roles, candidate.argument, reading))
        if keys := reading.keys.get(candidate.argument):
            contract = _packed(contract, candidate.argument, keys)
        else:
            contract = replace(contract, mask=required)
        tried = _try_hard(bench, contract, [m for m in variants if m.required])
        count += 1
        if tried.ran and next(outputs.tensors_in(tried.output), None) is not None:
            return tried, variants
        rank = (candidate.score, tried.operations)
        if best is None or _further(rank, best_rank):
            best, best_rank = tried, rank
        if bench.calls > MOST_CALLS:
            break
    if best is None or (not best.ran and best.operations < OWN_FAULT):
        raise CannotJudge(_no_call(bench.original, best, count))
    if best.ran:
        raise CannotJudge(f"{type(bench.original).__name__}.forward returns no tensor; name it with --output")
    return best, variants


def _further(rank: tuple[float, int], best: tuple[float, int]) -> bool:
    """Prefers a much better reason, then whoever ran more operations before the exception."""
    if rank[1] < OWN_FAULT <= best[1]:
        return False
    if best[1] < OWN_FAULT <= rank[1]:
        return True
    return rank[0] > best[0] + 1.0 or (abs(rank[0] - best[0]) <= 1.0 and rank[1] > best[1])


def _try_hard(bench: Bench, contract: CallContract, required: list[MaskContract]) -> Tried:
    """Tries a contract at several lengths, then with the sizes that a complaint names, then with other masks."""
    furthest: Tried | None = None
    for length in usual_lengths(contract, known_sizes(bench.original)):
        tried = bench.attempt(contract, length)
        if tried.ran:
            return tried
        if furthest is None or tried.operations > furthest.operations:
            furthest = tried
        if _beyond_lengths(tried):
            break
    assert furthest is not None
    furthest = _repair(bench, furthest)
    if furthest.ran or (furthest.operations == 0 and "dtype" in str(furthest.error)):
        return furthest
    return _other_masks(bench, furthest, required)


def _other_masks(bench: Bench, failed: Tried, required: list[MaskContract]) -> Tried:
    """Tries a required mask in other layouts and dtypes, and with the batch second."""
    furthest = failed
    for mask in required[1:MOST_MASKS]:
        for shape in dict.fromkeys((failed.contract.shape, _swapped(failed.contract.shape))):
            tried = bench.attempt(replace(failed.contract, mask=mask, shape=shape), failed.length)
            if tried.ran:
                return tried
            if tried.operations > furthest.operations:
                furthest = tried
    return furthest


def _beyond_lengths(tried: Tried) -> bool:
    """Whether an error is about the call itself, so that another length cannot help."""
    return isinstance(tried.error, (TypeError, AttributeError, KeyError)) or "dtype" in str(tried.error)


def _repair(bench: Bench, failed: Tried) -> Tried:
    furthest = failed
    queue = list(repaired(failed))
    seen = {(failed.contract.shape, failed.length)}
    while queue and len(seen) <= MOST_REPAIRS:
        contract, length = queue.pop(0)
        if (contract.shape, length) in seen:
            continue
        seen.add((contract.shape, length))
        tried = bench.attempt(contract, length)
        if tried.ran:
            return tried
        if tried.operations > furthest.operations:
            furthest = tried
        queue += repaired(tried)
    return furthest


def _swapped(shape: tuple[str | int, ...]) -> tuple[str | int, ...]:
    return (shape[1], shape[0], *shape[2:]) if {"B", "S"} == set(shape[:2]) else shape


def _packed(contract: CallContract, argument: str, keys: tuple[str, ...]) -> CallContract:
    """A contract whose arguments are the keys of one dict."""
    main = next((k for k in keys if "mask" not in k and "len" not in k), keys[0])
    mask = next((k for k in keys if "mask" in k), None)
    return replace(
        contract,
        argument=main,
        pack=argument,
        mask=MaskContract(mask, MaskMeaning.KEEP, "name", True, "BS", "int64", True) if mask else None,
    )


def _no_call(model: nn.Module, best: Tried | None, count: int) -> str:
    name = type(model).__name__
    if best is None or best.error is None:
        return f"no argument of {name}.forward looks like an input: give --input and --example"
    shape = ", ".join(map(str, best.contract.shape))
    return (
        f"no call of {name}.forward went through: tried {count} kinds of input, the likeliest {best.contract.input} "
        f"({shape}) as {best.contract.argument}, which gave {text_of(best.error)}; give --input, --arg or --example"
    )


def _with_vocabulary(bench: Bench, model: nn.Module, contract: CallContract, length: int) -> CallContract:
    """The vocabulary from the tables that the ids index; otherwise by name, if the largest id then runs."""
    tables = bench.tables(contract, length)
    guess = min(tables) if tables else vocab_guess(model, known_sizes(model))
    if guess is None:
        return contract
    low = 5 if guess >= 24 else 1 if guess >= 4 else 0
    fuller = replace(contract, vocab=guess, low=low, avoid=masks.special_ids(model, guess))
    if tables or bench.attempt(fuller, length).ran:
        return fuller
    return replace(contract, notes=(*contract.notes, "vocabulary unknown: only ids below 4 were tried"), certain=False)


# ---- the output ----------------------------------------------------------------------------------------------


def _with_output(bench: Bench, contract: CallContract, tried: Tried, given: Mapping[str, Any]) -> CallContract:
    found = outputs.locate(tried, given.get("output"))
    if found is None:
        raise CannotJudge(f"{type(bench.original).__name__}.forward returns no tensor; name it with --output")
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


def _mask_variants(reading: Reading, roles: Roles, given: Mapping[str, Any], batch_first: bool) -> list[MaskContract]:
    lengths = masks.choose_lengths(reading, roles, given)
    argument = masks.choose_argument(reading, roles, given)
    if lengths is not None and (
        given.get("lengths_arg") or argument is None or (lengths.required and not argument.required)
    ):
        other = "list" if lengths.dtype == "int64" else "int64"
        return [lengths, replace(lengths, dtype=other)]
    if argument is None:
        return []
    meaning = masks.documented_meaning(reading, roles, argument, given)
    return list(masks.variants(reading, argument, meaning, batch_first))


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
        variants = [contract.mask] if contract.mask else []
    names = {m.argument for m in variants if m.argument}
    pad = masks.pad_id_of(bench, model, contract, reading, names, given)
    length = contract.lengths_tried[0]
    if not variants or (given.get("pad_id") is not None and not given.get("mask_arg")):
        return _with_pad_id(bench, origin, contract, pad, length)
    if pad is not None:
        contract = replace(contract, avoid=tuple(sorted({*contract.avoid, pad[0]})))
    if not contract.batch_first:
        variants = _mask_variants(reading, roles, given, batch_first=False)
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
