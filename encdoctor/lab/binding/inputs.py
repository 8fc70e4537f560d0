"""Binds the main input: tries the candidates in order, mends sizes that an error names, keeps who got furthest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from encdoctor.contract import CallContract, MaskContract
from encdoctor.lab.binding import masks, outputs
from encdoctor.lab.binding.candidates import Roles, bare_contract, fill_extras, input_candidates
from encdoctor.lab.binding.lengths import repaired, usual_lengths
from encdoctor.lab.binding.sizes import known_sizes
from encdoctor.lab.binding.trials import Bench, Tried, text_of
from encdoctor.model import CannotJudge
from encdoctor.signatures import Reading

MOST_CANDIDATES = 14
# So many operations in, an exception is the model's own and not a refusal of the call.
OWN_FAULT = 3
MOST_REPAIRS = 8
MOST_MASKS = 14
MOST_CALLS = 600


def bind_input(
    bench: Bench, reading: Reading, roles: Roles, given: Mapping[str, Any]
) -> tuple[Tried, list[MaskContract]]:
    """The first candidate that runs, or the one that got furthest; and the mask's variants."""
    variants = mask_variants(reading, roles, given, batch_first=True)
    required = next((m for m in variants if m.required), None)
    best: Tried | None = None
    best_rank = (-1.0, -1)
    count, errors = 0, []
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
        errors.append(text_of(tried.error) if tried.error is not None else "")
        rank = (candidate.score, tried.operations)
        if best is None or _further(rank, best_rank):
            best, best_rank = tried, rank
        if bench.calls > MOST_CALLS:
            break
    if best is None or (not best.ran and best.operations < OWN_FAULT and not _whatever_is_passed(errors)):
        raise CannotJudge(_no_call(bench.original, best, count))
    if best.ran:
        raise CannotJudge(f"{type(bench.original).__name__}.forward returns no tensor; name it with --output")
    return best, variants


def _whatever_is_passed(errors: list[str]) -> bool:
    """Whether inputs of several kinds all met the same exception: then it is not about the input."""
    refusals = ("TypeError", "NotImplementedError", "AttributeError")
    return len(errors) > 2 and len(set(errors)) == 1 and bool(errors[0]) and not errors[0].startswith(refusals)


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
            if tried.ran and _of_expected_rank(tried):
                return tried
            if tried.operations > furthest.operations:
                furthest = tried
    return furthest


def _of_expected_rank(tried: Tried) -> bool:
    """Whether no axis was added by a mask that broadcast against the wrong ones."""
    ranks = [found.tensor.dim() for found in outputs.tensors_in(tried.output)]
    return len(tried.contract.shape) > 3 or min(ranks, default=0) <= 3


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
    name = next((k for k in keys if "mask" in k), None)
    if name is None:
        return replace(contract, argument=main, pack=argument, mask=None)
    known = masks.FIXED_NAMES.get(name)
    mask = MaskContract(name, known or masks.leaning(name), "name", known is not None, "BS", "int64", True)
    return replace(contract, argument=main, pack=argument, mask=mask)


def _no_call(model: nn.Module, best: Tried | None, count: int) -> str:
    name = type(model).__name__
    if best is None or best.error is None:
        return f"no argument of {name}.forward looks like an input: give --input and --example"
    shape = ", ".join(map(str, best.contract.shape))
    return (
        f"no call of {name}.forward went through: tried {count} kinds of input, the likeliest {best.contract.input} "
        f"({shape}) as {best.contract.argument}, which gave {text_of(best.error)}; give --input, --arg or --example"
    )


def mask_variants(reading: Reading, roles: Roles, given: Mapping[str, Any], batch_first: bool) -> list[MaskContract]:
    """How padding could be told, the likeliest first; empty where no argument is for it."""
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
