"""Candidates for a call, each with its reason: which argument is the input, of what kind, in what shape."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from encdoctor.contract import CallContract, Extra, InputKind
from encdoctor.lab.binding import words
from encdoctor.lab.binding.sizes import Shape, known_sizes, shapes_for
from encdoctor.signatures import Argument, Reading, read_class

_MASK_NAME = re.compile(
    r"mask|(^|_)(pads?|paddings?|padded|valid|keep|observed|visible|nonpad|blocked|bias)(_|$)", re.I
)
_LENGTHS_NAME = re.compile(r"(^|_)(len|lens|length|lengths|ilens|seqlens?|n_valid|num_valid)(_|$)|lens$|lengths$", re.I)
# Arguments that are about something else than this batch's content or padding.
_OTHER = re.compile(
    r"position|pos_ids|token_type|segment|past_|cache|label|head_mask|encoder_|decoder|cross|output_|return_|use_|mems?$|"
    r"interpolate|noise|memory|tgt|target|langs|causal|perm_|bool_masked|mask_time|max_|observed_mask|need_|global_|"
    r"task|adapter|history|incremental|src_mask_for|shape",
    re.I,
)
_IDS_NAME = re.compile(
    r"(^|_)(ids?|idx|indices|tokens?|words?|pieces?|phonemes?|chars?|text|cells|codes|symbols|input_ids)(_|$)", re.I
)
_FLOAT_NAME = re.compile(
    r"embed|feat|vector|hidden|frames?$|series|signal|spec|mel|values$|obs|cont|numer|^x$|^h$|^z$|clip|video|coords",
    re.I,
)
_PIXELS_NAME = re.compile(r"(^|_)(im|imgs?|images?|pixels?|pixel_values|picture|photo)(_|$)", re.I)
_AUDIO_NAME = re.compile(r"wav|audio|speech|^input_values$|^samples$", re.I)


@dataclass(frozen=True)
class InputCandidate:
    """One way in which the main input could be passed."""

    argument: str
    kind: InputKind
    shape: tuple[str | int, ...]
    why: str
    score: float


@dataclass(frozen=True)
class Roles:
    """What each argument of forward is for."""

    main: tuple[tuple[float, Argument], ...]
    masks: tuple[Argument, ...]
    lengths: tuple[Argument, ...]
    others: tuple[Argument, ...]


def read_model(model: nn.Module) -> Reading:
    """Reads forward's signature and docs; into the first module of a Sequential, and through `**kwargs`."""
    first = model
    while type(first) is nn.Sequential and len(first):
        first = first[0]
    if first is not model:
        inner = read_class(type(first))
        return replace(inner, arguments=tuple(replace(a, positional_only=True) for a in inner.arguments[:1]))
    reading = read_class(type(model), model.forward)
    for name in reading.passes_on:
        inner_module = getattr(model, name, None)
        if isinstance(inner_module, nn.Module):
            inner = read_class(type(inner_module), inner_module.forward)
            known = {a.name for a in reading.arguments}
            more = tuple(replace(a, required=False) for a in inner.arguments[1:] if a.name not in known)
            reading = replace(reading, arguments=reading.arguments + more, docs=reading.docs + inner.docs)
    return reading


def sort_arguments(model: nn.Module, reading: Reading) -> Roles:
    """Tells the main input's candidates, masks, lengths and the rest apart by name, default and documentation."""
    masks, lengths, others, main = [], [], [], []
    main_name = getattr(model, "main_input_name", None)
    for place, argument in enumerate(reading.arguments):
        if argument.name == main_name:
            main.append((10.0, argument))
        elif _is_flag(argument) or (_OTHER.search(argument.name) and place > 0):
            others.append(argument)
        elif _is_lengths(argument, reading) and place > 0:
            lengths.append(argument)
        elif _is_mask(argument, reading, place):
            masks.append(argument)
        else:
            main.append((_main_score(argument, reading, place), argument))
    if not main and masks:
        main.append((1.0, masks.pop(0)))
    main.sort(key=lambda pair: -pair[0])
    return Roles(tuple(main), tuple(masks), tuple(lengths), tuple(others))


def _is_flag(argument: Argument) -> bool:
    if isinstance(argument.default, (bool, int, float, str)):
        return True
    return argument.annotation.strip() in ("bool", "int", "float", "str")


def _is_lengths(argument: Argument, reading: Reading) -> bool:
    if _LENGTHS_NAME.search(argument.name):
        return True
    return any(
        re.search(r"^\W*[^.;]{0,40}\b(?:number of (?:real|valid)|true lengths?)\b", d.text, re.I)
        for d in reading.about(argument.name)
    )


def _is_mask(argument: Argument, reading: Reading, place: int) -> bool:
    named = bool(_MASK_NAME.search(argument.name))
    if place == 0:
        return "mask" in argument.name.lower() or argument.name in ("pad", "padding", "valid", "keep")
    if named or "BoolTensor" in argument.annotation:
        return True
    return any(
        words.meaning_of(d.text) and re.search(r"bool|mask|\bTrue\b|scores", d.text)
        for d in reading.about(argument.name)
    )


def _main_score(argument: Argument, reading: Reading, place: int) -> float:
    score = 3.0 * argument.required + (2.0 if place == 0 else 0.0)
    score += 1.0 * any(p.search(argument.name) is not None for p in (_IDS_NAME, _PIXELS_NAME, _AUDIO_NAME, _FLOAT_NAME))
    score += 1.0 * any(words.kind_in(d.text) for d in reading.about(argument.name))
    return score - 1.5 * argument.name.endswith("embeds")


def fill_extras(roles: Roles, main: str, reading: Reading) -> tuple[Extra, ...]:
    """What to pass for further required arguments."""
    needed = [a for _, a in roles.main if a.required and a.name != main]
    needed += [a for a in roles.others if a.required]
    return tuple(_extra_for(argument, reading) for argument in needed)


def _extra_for(argument: Argument, reading: Reading) -> Extra:
    name = argument.name.lower()
    if argument.annotation.strip() in ("bool", "int", "float", "str"):
        value = {"bool": False, "int": 0, "float": 0.0, "str": ""}[argument.annotation.strip()]
        return Extra(argument.name, "value", f"annotated {argument.annotation}", value)
    if "pos" in name:
        return Extra(argument.name, "positions", "name")
    if re.search(r"type|segment|lang|task|group|speaker", name):
        return Extra(argument.name, "zeros", "name")
    kind = next((k for d in reading.about(argument.name) if (k := words.kind_in(d.text))), None)
    if kind is InputKind.IDS or "Long" in argument.annotation:
        return Extra(argument.name, "zeros", "documented as integers")
    if re.search(r"^(use|return|need|is)_|flag", name):
        return Extra(argument.name, "value", "name", False)
    return Extra(argument.name, "content", "required, nothing said about it: the main input once more")


def input_candidates(
    model: nn.Module, reading: Reading, roles: Roles, given: Mapping[str, Any]
) -> list[InputCandidate]:
    """Every plausible way to pass the main input, the likeliest first."""
    sizes = known_sizes(model)
    found: list[InputCandidate] = []
    for importance, argument in roles.main[:3]:
        documented = _documented(reading, argument, alone=len(roles.main) == 1)
        for kind, score, why in _kinds(model, reading, argument, documented):
            if given.get("input") and InputKind(given["input"]) is not kind:
                same = {kind, InputKind(given["input"])} == {InputKind.EMBEDDINGS, InputKind.FEATURES}
                if not same:
                    continue
                kind, why = InputKind(given["input"]), "given"
            for rank, (shape, shape_why) in enumerate(shapes_for(model, kind, documented, argument, reading, sizes)):
                reason = f"{why}, {shape_why}" if shape_why else why
                kind_here = InputKind.PIXELS if _is_image(kind, shape, given) else kind
                found.append(InputCandidate(argument.name, kind_here, shape, reason, importance + score - 0.2 * rank))
    return sorted(found, key=lambda c: -c.score)


def _is_image(kind: InputKind, shape: Shape, given: Mapping[str, Any]) -> bool:
    """Whether floats of this shape are a picture: up to four channels, two equal sides."""
    if kind is not InputKind.FEATURES or given.get("input") or len(shape) != 4:
        return False
    return isinstance(shape[1], int) and shape[1] <= 4 and shape[2] == shape[3] and isinstance(shape[2], int)


def _documented(reading: Reading, argument: Argument, alone: bool) -> list[tuple[str, str]]:
    """(where, text) of the argument's definitions; for an only argument, what precedes "returns" in any doc."""
    found = [(d.where, d.text) for d in reading.about(argument.name)]
    if not found and alone:
        for doc in reading.docs:
            before = re.split(r"\breturns?\b", doc.text, flags=re.IGNORECASE)[0]
            if words.shapes_in(before) or words.kind_in(before):
                found.append((doc.where, before))
    return found


def _kinds(
    model: nn.Module, reading: Reading, argument: Argument, documented: list[tuple[str, str]]
) -> list[tuple[InputKind, float, str]]:
    scores: dict[InputKind, float] = {
        InputKind.IDS: 0.0,
        InputKind.FEATURES: 0.3,
        InputKind.PIXELS: -1.0,
        InputKind.AUDIO: -1.0,
    }
    why: dict[InputKind, list[str]] = {kind: [] for kind in scores}

    def credit(kind: InputKind, amount: float, reason: str) -> None:
        scores[kind] += amount
        why[kind].append(reason)

    for where, text in documented:
        if kind := words.kind_in(text):
            credit(kind, 3.0, where)
            break
    for pattern, kind in (
        (_PIXELS_NAME, InputKind.PIXELS),
        (_AUDIO_NAME, InputKind.AUDIO),
        (_IDS_NAME, InputKind.IDS),
        (_FLOAT_NAME, InputKind.FEATURES),
    ):
        if pattern.search(argument.name):
            credit(kind, 2.0, "name")
            break
    if re.search(r"Long|Int(?!er)", argument.annotation):
        credit(InputKind.IDS, 2.0, "annotation")
    if "FloatTensor" in argument.annotation:
        credit(InputKind.FEATURES, 1.0, "annotation")
    modules = list(model.modules())
    embeds = any(isinstance(m, (nn.Embedding, nn.EmbeddingBag)) for m in modules)
    credit(InputKind.IDS, 1.0 if embeds else -1.0, "an embedding table" if embeds else "no embedding table")
    first = next((m for m in modules if isinstance(m, (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear))), None)
    if isinstance(first, nn.Conv2d) and first.in_channels <= 4:
        credit(InputKind.PIXELS, 2.5, f"Conv2d of {first.in_channels} channels")
    if isinstance(first, nn.Conv1d) and first.in_channels == 1:
        credit(InputKind.AUDIO, 2.5, "Conv1d of one channel")
    shapes = [s for _, text in documented for s in words.shapes_in(text)]
    if shapes and len(shapes[0]) >= 3:
        credit(InputKind.IDS, -2.0, "")
    if shapes and len(shapes[0]) == 4 and not scores[InputKind.PIXELS] > 0:
        credit(InputKind.FEATURES, 1.0, "four axes")
    return [
        (kind, score, ", ".join(w for w in why[kind] if w) or "tried") for kind, score in scores.items() if score > -2.5
    ]


def bare_contract(candidate: InputCandidate, reading: Reading, extras: tuple[Extra, ...]) -> CallContract:
    """A contract that holds the candidate alone."""
    argument = reading.argument(candidate.argument)
    return CallContract(
        candidate.kind,
        candidate.argument,
        candidate.shape,
        candidate.why,
        vocab=4 if candidate.kind is InputKind.IDS else None,
        low=1 if candidate.kind is InputKind.IDS else 0,
        keyword=not (argument is None or argument.positional_only),
        extras=extras,
    )
