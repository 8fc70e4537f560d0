"""Lengths and sizes: what an error's numbers ask for, which lengths run, how long a sequence may be."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from encdoctor.contract import CallContract, InputKind
from encdoctor.lab.binding.trials import BATCH, LENGTH, Bench, Tried

LIMIT_NAMES = re.compile(
    r"^(max_.*(len|length|tokens|pos|positions?|position_embeddings)|maxlen|n_positions|n_ctx|context_length|block_size|"
    r"seq_len|seq_length|sequence_length|max_.*strlen)$"
)
# Trying a longest length must stay cheap.
LONGEST_TRIED = 1024
# Fewer output positions than this show nothing about padding.
FEWEST_POSITIONS = 6


def usual_lengths(contract: CallContract, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Lengths to try, the preferred first, then those that the model's settings name."""
    if contract.input is InputKind.AUDIO:
        return (401, 4001, 16001)
    if not contract.has_sequence:
        return (LENGTH,)
    named = sorted(v for n, v in sizes.items() if LIMIT_NAMES.search(n) and 2 <= v <= LONGEST_TRIED)
    return tuple(dict.fromkeys((LENGTH, *named[:3], 16, 64)))


def repaired(tried: Tried) -> Iterator[tuple[CallContract, int]]:
    """(contract, length) with sizes exchanged for other numbers that the error names."""
    numbers = [int(n) for n in re.findall(r"(?<![\w.])\d{1,5}(?![\w.])|(?<=x)\d+|\d+(?=x)", str(tried.error))]
    contract = tried.contract
    wanted = re.search(r"to have (\d+) channels, but got (\d+) channels", str(tried.error))
    if wanted and int(wanted.group(2)) == tried.length and contract.shape[1:2] == ("S",):
        yield replace(contract, shape=("B", int(wanted.group(1)), "S")), tried.length  # channels come first
        return
    if tried.operations == 0 and not numbers:
        return
    asked = [n for n in dict.fromkeys(numbers) if 0 < n <= 65536]
    for place, size in enumerate(contract.shape):
        if isinstance(size, int) and size in asked and contract.input is not InputKind.IDS:
            for other in asked:
                if other not in (size, BATCH):
                    shape = (*contract.shape[:place], other, *contract.shape[place + 1 :])
                    yield replace(contract, shape=shape), tried.length
    if contract.has_sequence:
        for other in asked:
            # a length equal to another axis would hide that the two axes were taken for each other
            usable = other not in (tried.length, BATCH, *contract.shape) and 2 <= other <= 4096
            if usable and _about_length(tried):
                yield contract, other
    elif contract.input is InputKind.PIXELS:
        for other in asked:
            if other > 4 and other not in contract.shape:
                yield replace(contract, shape=("B", contract.shape[1], other, other)), tried.length


def _about_length(tried: Tried) -> bool:
    text = str(tried.error)
    return bool(
        re.search(rf"\b{tried.length}\b", text) or re.search(r"length|long|short|position|token|step|frame", text, re.I)
    )


def find_lengths(bench: Bench, contract: CallContract, length: int, sizes: Mapping[str, int]) -> CallContract:
    """Which lengths run: fixes the sequence axis where only one does, finds the longest where there is a limit."""
    settings = {} if length == LENGTH else {"length": length}
    if not contract.has_sequence:
        return replace(contract, lengths_tried=(length,), settings=settings)
    second = next((n for n in (2 * length, length - 2, length // 2) if n > 1 and bench.attempt(contract, n).ran), None)
    if second is None:
        return _fixed(replace(contract, lengths_tried=(length,), settings=settings), length)
    contract = replace(contract, lengths_tried=(length, second), settings=settings)
    return _longest(bench, contract, max(length, second), sizes)


def _fixed(contract: CallContract, length: int) -> CallContract:
    notes = (*contract.notes, f"only length {length} ran")
    if contract.mask is not None:  # a mask still tells positions of that length apart
        return replace(contract, max_length=length, notes=notes)
    return replace(contract, shape=tuple(length if axis == "S" else axis for axis in contract.shape), notes=notes)


def lengthened(bench: Bench, contract: CallContract, positions: int) -> CallContract:
    """A longer usual length where the model keeps too few positions of a short one (strides, subsampling)."""
    length = contract.lengths_tried[0]
    if not contract.has_sequence or "S" not in contract.output_axes or positions >= FEWEST_POSITIONS:
        return contract
    for longer in (4 * length + 1, 4 * length, 2 * length):
        if bench.attempt(contract, longer).ran:
            tried = (longer, *contract.lengths_tried)
            return replace(contract, lengths_tried=tried, settings={**contract.settings, "length": longer})
    return contract


def _longest(bench: Bench, contract: CallContract, works: int, sizes: Mapping[str, int]) -> CallContract:
    """Sets the largest length known to run where a longer one fails."""
    named = sorted({(v, n) for n, v in sizes.items() if LIMIT_NAMES.search(n) and works < v <= LONGEST_TRIED})
    if contract.input is InputKind.AUDIO:
        return contract
    for limit, name in named:
        if bench.attempt(contract, limit, batch=2).ran:
            works = limit
            continue
        longest = _bisect(bench, contract, works, limit)
        if longest < limit - 2:  # a table may keep a row or two for padding and a [CLS]
            contract = replace(
                contract, notes=(*contract.notes, f"{name}={limit}, but {longest} is the longest that ran")
            )
        return replace(contract, max_length=longest)
    if named:
        return replace(contract, max_length=works)
    step = contract.lengths_tried[0] if contract.settings else 1  # lengths may have to be multiples
    longer = max(5 * contract.lengths_tried[0], 2 * works)
    if bench.attempt(contract, longer, batch=2).ran:
        return contract
    return replace(contract, max_length=_bisect(bench, contract, works, longer, step))


def _bisect(bench: Bench, contract: CallContract, works: int, fails: int, step: int = 1) -> int:
    while fails - works > step:
        middle = works + max(step, (fails - works) // 2 // step * step)
        if bench.attempt(contract, middle, batch=2).ran:
            works = middle
        else:
            fails = middle
    return works
