"""How padding is told: which argument, what True means there, its layout and dtype; or which id is padding.

Order of sources: the user's option, lengths or a pad id, documentation, names with a fixed meaning, behaviour.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from encdoctor.contract import CallContract, InputKind, MaskContract, MaskMeaning
from encdoctor.lab.binding import words
from encdoctor.lab.binding.candidates import Roles
from encdoctor.lab.binding.trials import Bench, Tried, text_of
from encdoctor.lab.outputs import canonical, pick
from encdoctor.signatures import Argument, Reading, as_mapping, config_objects

KEEP, DROP = MaskMeaning.KEEP, MaskMeaning.DROP
FIXED_NAMES = {
    "attention_mask": KEEP,
    "key_padding_mask": DROP,
    "src_key_padding_mask": DROP,
    "encoder_padding_mask": DROP,
}
# Names that lean one way; they decide only where behaviour cannot.
_LEANING = (
    (re.compile(r"valid|keep|observed|visible|nonpad|non_pad|real", re.I), KEEP),
    (re.compile(r"pad|block|ignore|drop", re.I), DROP),
)
_SQUARE_NAMES = ("mask", "src_mask", "attn_mask", "attn_bias", "attention_bias")
_LAYOUTS = ("BS", "B1S", "B11S", "BSS", "B1SS", "SB", "1SB", "BS1")
_PAD_NAMES = (
    "pad_id pad_idx pad_index pad_token_id pad_token padding_idx padding_id padding_index pad pad_value".split()
)
_ABOUT_SIZES = re.compile(r"size|shape|dimension|dtype|expand|match", re.I)
# Real outputs of one sentence with more or less padding differ by rounding alone where padding is honoured.
_ALIKE = 1e-4


@dataclass(frozen=True)
class Meaning:
    """A mask's meaning with its reason."""

    true: MaskMeaning
    why: str
    certain: bool


def choose_argument(reading: Reading, roles: Roles, given: Mapping[str, Any]) -> Argument | None:
    """The argument that tells about padding, None where there is none."""
    if name := given.get("mask_arg"):
        return reading.argument(name) or Argument(name, required=False)
    ranked = sorted(roles.masks, key=lambda a: -_rank(a, reading))
    return ranked[0] if ranked else None


def _rank(argument: Argument, reading: Reading) -> float:
    score = 4.0 * (argument.name in FIXED_NAMES) + 1.0 * ("pad" in argument.name)
    score += 3.0 * any(words.meaning_of(d.text) for d in reading.about(argument.name))
    return score + 1.0 * argument.required - 1.0 * (argument.name in _SQUARE_NAMES)


def choose_lengths(reading: Reading, roles: Roles, given: Mapping[str, Any]) -> MaskContract | None:
    """The lengths argument, None where there is none."""
    name = given.get("lengths_arg")
    argument = reading.argument(name) if name else next(iter(roles.lengths), None)
    if argument is None:
        return MaskContract(name, MaskMeaning.LENGTHS, "given", True, "B", "int64") if name else None
    where = next((d.where for d in reading.about(argument.name)), "name")
    dtype = "list" if re.search(r"\b[lL]ist\b|Sequence|tuple\[", argument.annotation) else "int64"
    why = "given" if name else where
    return MaskContract(argument.name, MaskMeaning.LENGTHS, why, True, "B", dtype, argument.required)


def documented_meaning(reading: Reading, roles: Roles, argument: Argument, given: Mapping[str, Any]) -> Meaning | None:
    """What options, documentation or a fixed name say; None where nothing does."""
    if true := given.get("mask_true"):
        return Meaning(MaskMeaning(true), "given", True)
    for doc in reading.about(argument.name):
        if meaning := words.meaning_of(doc.text):
            return Meaning(meaning, doc.where, True)
    if len(roles.masks) == 1:
        for doc in reading.docs:
            for sentence in re.split(r"(?<=[.;])\s|\n\s*\n", re.split(r"\breturns?\b", doc.text, flags=re.I)[0]):
                if re.search(r"mask|padd", sentence, re.I) and (meaning := words.meaning_of(sentence)):
                    return Meaning(meaning, doc.where, True)
    if argument.name in FIXED_NAMES:
        return Meaning(FIXED_NAMES[argument.name], "name", True)
    return None


def leaning(name: str) -> MaskMeaning:
    """The meaning that a name suggests."""
    return next((meaning for pattern, meaning in _LEANING if pattern.search(name)), MaskMeaning.UNKNOWN)


def variants(
    reading: Reading, argument: Argument, meaning: Meaning | None, batch_first: bool
) -> Iterator[MaskContract]:
    """The mask in every layout and dtype worth trying, the documented ones first."""
    text = " ".join(d.text for d in reading.about(argument.name))
    true = meaning or Meaning(leaning(argument.name), "name", False)
    layout = next((found for axes in words.shapes_in(text) if (found := _layout(axes))), "BS")
    dtype = words.dtype_of(text, argument.annotation) or ("int64" if argument.name == "attention_mask" else "bool")
    if true.true is MaskMeaning.ADDITIVE:
        dtype = "float"
    dtypes = list(dict.fromkeys((dtype, "bool", "int64", "float")))
    order = list(dict.fromkeys((layout, *_LAYOUTS)))
    if not batch_first and layout == "BS" and "SB" not in order[:2]:
        order.insert(1, "SB")
    for one in dict.fromkeys(order):
        for kind in dtypes if one == layout else dtypes[:1]:
            yield MaskContract(argument.name, true.true, true.why, true.certain, one, kind, argument.required)


def _layout(axes: tuple[str, ...]) -> str | None:
    letters = []
    for axis in axes:
        if words.is_batch(axis, axes):
            letters.append("B")
        elif axis == "1" or axis in ("heads", "h", "num_heads", "nhead"):
            letters.append("1")
        elif words.is_sequence(axis, axes) or axis in ("query", "key", "keys", "queries"):
            letters.append("S")
        else:
            return None
    layout = "".join(letters)
    return layout if layout.count("B") == 1 and layout.count("S") in (1, 2) and layout != "B" else None


def judge(bench: Bench, contract: CallContract, mask: MaskContract, length: int) -> MaskContract:
    """Adopts the reading under which padding does not count and real content does; says so where none does."""
    works = [
        meaning
        for meaning in (KEEP, DROP)
        if reads_right(bench, replace(contract, mask=replace(mask, true=meaning)), length)
    ]
    lean = leaning(mask.argument or "")
    if len(works) == 1:
        return replace(mask, true=works[0], why="tried: this way round padding does not count", certain=True)
    additive = replace(mask, true=MaskMeaning.ADDITIVE, dtype="float")
    if not works and reads_right(bench, replace(contract, mask=additive), length):
        return replace(additive, why="tried: added to the scores, it hides padding", certain=True)
    tried = "both ways round work" if works else "neither way round hides padding"
    if lean is not MaskMeaning.UNKNOWN:
        return replace(mask, true=lean, why=f"name, {tried}", certain=False)
    return replace(mask, true=MaskMeaning.UNKNOWN, why=f"not documented, {tried}", certain=False)


def reads_right(bench: Bench, contract: CallContract, length: int) -> bool:
    """Whether real outputs are blind to padding, on either side, and see other real content."""
    lengths = (length, max(2, length * 7 // 13), max(2, length * 5 // 13))
    sides = ("right",) if contract.input is InputKind.AUDIO else ("right", "left")
    for side in sides:
        base = _real(bench, contract, length, lengths=lengths, side=side)
        other = _real(bench, contract, length, lengths=lengths, side=side, padding_seed=1)
        if base is None or other is None or _change(base, other) > 0:
            return False
    place = lengths[1] // 2
    base = _real(bench, contract, length, lengths=lengths, without=place)
    other = _real(bench, contract, length, lengths=lengths, without=place, replaced=((1, place),))
    return base is not None and other is not None and _change(base[1:2], other[1:2]) > 0


def _change(one: Tensor, two: Tensor) -> float:
    # where both are not finite nothing moved; where one is, everything did
    return float(
        torch.where(one.isnan() & two.isnan(), torch.zeros_like(one), (one - two).abs().nan_to_num(nan=1.0)).max()
    )


def _real(
    bench: Bench, contract: CallContract, length: int, without: int | None = None, **changes: Any
) -> Tensor | None:
    """Outputs (B, S, F) with everything but surely real positions set to zero."""
    tried = bench.attempt(contract, length, **changes)
    if not tried.ran:
        return None
    output = canonical(pick(tried.output, contract.output), contract.output_axes).double()
    if contract.pooled:
        return output
    keep = torch.zeros(output.shape[:2], dtype=torch.bool)
    positions, left = output.shape[1], changes.get("side") == "left"
    for sample, real in enumerate(changes["lengths"]):
        if positions in (length, length + 1):
            start = length - real + 1 if left else positions - length
            keep[sample, start : start + real - 1] = True
        else:
            count = max(1, positions * real // length - 2)
            keep[sample, positions - count :] = left
            keep[sample, :count] = not left
        if without is not None:
            keep[sample, without : without + 2] = False
    return output * keep[:, :, None].to(output.device)


def pad_id_of(
    bench: Bench,
    model: nn.Module,
    contract: CallContract,
    reading: Reading,
    mask_names: set[str],
    given: Mapping[str, Any],
) -> tuple[int, str, bool] | None:
    """(id, why, certain) of the id that means padding."""
    if contract.input is not InputKind.IDS:
        return None
    if given.get("pad_id") is not None:
        return int(given["pad_id"]), "given", True
    for doc in (*reading.about(contract.argument), *reading.docs):
        text = doc.text
        for name in mask_names:
            text = re.sub(rf"(?<!\w){re.escape(name)}[`*]*\s*[:(\[].*?(?=\n\s*\n|$)", "", text, flags=re.S)
        if (found := words.pad_id_in(text)) is not None and found < (contract.vocab or 1 << 30):
            return found, doc.where, True
    found, why = _named_pad_id(model, contract)
    if found is None:
        return None
    compares = re.search(r"(?:[!=]=\s*|\.(?:eq|ne|not_equal)\(\s*)(?:self\.)?(?:[\w.]*pad\w*|\d+\b)", reading.source)
    return found, why, bool(compares)


def _named_pad_id(model: nn.Module, contract: CallContract) -> tuple[int | None, str]:
    for module in model.modules():
        if (
            isinstance(module, nn.Embedding)
            and module.padding_idx is not None
            and module.num_embeddings == contract.vocab
        ):
            return module.padding_idx, f"padding_idx={module.padding_idx} of the embedding"
    for holder in (vars(model), *(as_mapping(c) for c in config_objects(model))):
        for name in _PAD_NAMES:
            value = holder.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < (contract.vocab or 0):
                return value, f"{name}={value}"
    return None, ""


def honours_pad_id(bench: Bench, contract: CallContract, length: int) -> bool:
    """Whether a sample's outputs stay the same when fewer pad ids follow it."""
    real = max(2, length * 5 // 13)
    call = bench.call(contract, bench.situation(length, lengths=(real,) * 3))
    if contract.argument not in call.kwargs:
        return False
    sequence = contract.shape.index("S")
    try:
        long = canonical(pick(bench.forward(call), contract.output), contract.output_axes).double()
        call.kwargs[contract.argument] = call.content.narrow(sequence, 0, (length + real) // 2)
        short = canonical(pick(bench.forward(call), contract.output), contract.output_axes).double()
    except Exception:  # what does not run with this id does not honour it; the contract stays uncertain and says so
        return False
    places = 1 if contract.pooled else real
    one, two = long[:, :places], short[:, :places]
    return one.shape == two.shape and bool((one - two).abs().max() <= _ALIKE * (1 + one.abs().max()))


def special_ids(model: nn.Module, vocab: int | None) -> tuple[int, ...]:
    """Ids that configs name as special (mask, end of text, …)."""
    found: set[int] = set()
    for config in config_objects(model):
        for name, value in as_mapping(config).items():
            if re.search(r"_token_id$|^(?:mask|eos|bos|cls|sep|unk)_(?:id|idx)$", str(name)) and isinstance(value, int):
                found.add(value)
    return tuple(sorted(i for i in found if 0 <= i < (vocab or 0)))


def is_explicit(reading: Reading, argument: str | None) -> bool:
    """Whether the mask's layout or dtype is written down, so that what is written has to work."""
    if argument is None:
        return False
    texts = [d.text for d in reading.about(argument)]
    return any(words.dtype_of(t) or any(_layout(axes) for axes in words.shapes_in(t)) for t in texts)


def bind_mask(
    bench: Bench, contract: CallContract, variants: list[MaskContract], length: int, explicit: bool
) -> tuple[MaskContract, str]:
    """The mask to use and what to note: the first variant that runs, or the documented one though it raises."""
    lengths = (length, max(1, length * 7 // 13), max(1, length * 5 // 13))
    expected = None if contract.mask is not None else _shape_of(bench.attempt(contract, length), contract)
    furthest = (-1, variants[0], "")
    for mask in variants:
        trial = bench.attempt(replace(contract, mask=mask), length, lengths=lengths)
        if trial.error is not None:
            raised = f"with {mask.argument} forward raises {text_of(trial.error)}"
            # a complaint about sizes refuses the layout; any other comes from behind it
            got = trial.operations + 1000 * (_ABOUT_SIZES.search(str(trial.error)) is None)
            if got > furthest[0] and not (explicit and furthest[2]):
                furthest = (got, mask, raised)
        elif expected is not None and (shape := _shape_of(trial, contract)) != expected:
            if explicit and mask is variants[0]:
                return mask, f"with {mask.argument} the output's shape is {shape} instead of {expected}"
            continue  # broadcast against an axis that is not the mask's
        elif furthest[2] and explicit:
            return variants[0], f"{furthest[2]}; it runs with ({', '.join(mask.layout)}) {mask.dtype}"
        else:
            return mask, ""
    return furthest[1], furthest[2]


def _shape_of(trial: Tried, contract: CallContract) -> tuple[int, ...] | None:
    return tuple(pick(trial.output, contract.output).shape) if trial.ran else None
