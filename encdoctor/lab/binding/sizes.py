"""Shapes worth trying for an input: from documented axes, unpacked names, sizes that the model knows by name."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from encdoctor.contract import InputKind
from encdoctor.lab.binding import words
from encdoctor.signatures import Argument, Reading, as_mapping, config_objects

Shape = tuple[str | int, ...]

_WIDTH_NAMES = (
    "input_size input_dim in_features in_dim d_in feature_size num_features n_features features feat feat_dim "
    "num_mel_bins n_mels mels num_input_channels in_channels channels d_model model_dim embed_dim hidden_size width "
    "dim d size"
).split()
_IMAGE_NAMES = "image_size img_size input_resolution resolution image_height size height input_size".split()
_CHANNEL_NAMES = "num_channels in_channels in_chans channels n_channels c".split()
_VOCAB_PARTS = ("vocab", "symbol", "alphabet", "categor")
_VOCAB_NAMES = (
    "vocab_size vocab n_vocab num_embeddings n_tokens num_tokens ntoken ntokens n_token vocabulary_size symbols".split()
)


def shapes_for(
    model: nn.Module,
    kind: InputKind,
    documented: list[tuple[str, str]],
    argument: Argument,
    reading: Reading,
    sizes: Mapping[str, int],
) -> Iterator[tuple[Shape, str]]:
    """(shape, why) for an argument of that kind, the likeliest first, each once."""
    seen: set[Shape] = set()
    for shape, why in _every_shape(model, kind, documented, argument, reading, sizes):
        if shape not in seen and not (kind is InputKind.IDS and len(shape) > 3):
            seen.add(shape)
            yield shape, why


def _every_shape(
    model: nn.Module,
    kind: InputKind,
    documented: list[tuple[str, str]],
    argument: Argument,
    reading: Reading,
    sizes: Mapping[str, int],
) -> Iterator[tuple[Shape, str]]:
    widths = _widths(model, sizes)
    for where, text in documented:
        for axes in words.shapes_in(text)[:1]:
            if kind is InputKind.AUDIO and len(axes) > 3:
                continue
            for width in widths[:3]:
                if shape := to_shape(axes, kind, sizes, width):
                    yield shape, f"shape in the {where}"
    unpacked = reading.unpacked.get(argument.name, ())
    if len(unpacked) >= 2 and kind is not InputKind.PIXELS:
        order = words.batch_first_of(tuple(n.lower() for n in unpacked))
        if len(unpacked) == 4 and kind is InputKind.FEATURES:
            side = _first_size(sizes, _IMAGE_NAMES) or 8
            for width in widths[:2]:
                yield ("B", width, side, side), f"unpacked as {', '.join(unpacked)}"
        elif order is False:
            yield (("S", "B") if kind is InputKind.IDS else ("S", "B", widths[0])), f"unpacked as {', '.join(unpacked)}"
    if kind is InputKind.IDS or kind is InputKind.AUDIO:
        yield ("B", "S"), ""
        if kind is InputKind.AUDIO:
            yield ("B", 1, "S"), ""
        return
    if kind is InputKind.PIXELS:
        yield from (((("B", c, side, side)), "") for c in _channels(model, sizes) for side in _sides(model, sizes))
        return
    yield from ((("B", "S", width), "") for width in widths[:3])
    yield from ((("B", width, "S"), "channels first") for width in widths[:1])
    yield ("B", "S"), "one number a step"
    yield ("B", widths[0]), "one row a sample"


def to_shape(axes: tuple[str, ...], kind: InputKind, sizes: Mapping[str, int], width: int) -> Shape | None:
    """Documented axis names as a contract's shape: one B, at most one S, numbers for the rest."""
    shape: list[str | int] = []
    spatial = [a for a in axes if a in ("height", "width", "h", "w")]
    for axis in axes:
        if words.is_batch(axis, axes) and "B" not in shape:
            shape.append("B")
        elif axis.isdigit():
            shape.append(int(axis))
        elif len(spatial) == 2 and axis in spatial:
            shape.append(_first_size(sizes, _IMAGE_NAMES) or 32)
        elif (words.is_sequence(axis, axes) and "S" not in shape) or ("S" not in shape and len(axes) == 2):
            shape.append("S")
        elif axis == axes[-1] and axis not in sizes:
            shape.append(width)
        else:
            shape.append(_size_of(axis, sizes) or width)
    if "S" not in shape and len(axes) == 3 and isinstance(shape[1], int) and not axes[1].isdigit():
        shape[1] = "S"
    return tuple(shape) if "B" in shape and len(shape) > 1 else None


def known_sizes(model: nn.Module) -> dict[str, int]:
    """Whole numbers that the model knows by name: constructor defaults, config values, attributes (the strongest)."""
    sizes: dict[str, int] = {}

    def take(names: Mapping[str, Any]) -> None:
        for name, value in names.items():
            if isinstance(value, int) and not isinstance(value, bool) and value > 0 and isinstance(name, str):
                sizes[name.lower().strip("_")] = value

    try:
        parameters = inspect.signature(type(model).__init__).parameters
        take({n: p.default for n, p in parameters.items()})
    except (TypeError, ValueError):
        pass
    for holder in config_objects(model):
        take(as_mapping(holder))
    take(vars(model))
    return sizes


def vocab_guess(model: nn.Module, sizes: Mapping[str, int]) -> int | None:
    """The vocabulary by name, or the largest embedding table."""
    tables = [m.num_embeddings for m in model.modules() if isinstance(m, nn.Embedding)]
    named = [v for n, v in sizes.items() if any(part in n for part in _VOCAB_PARTS)]
    return _first_size(sizes, _VOCAB_NAMES) or max(tables, default=0) or max(named, default=0) or None


def _first_size(sizes: Mapping[str, int], names: Sequence[str]) -> int | None:
    return next((sizes[n] for n in names if n in sizes), None)


def _size_of(axis: str, sizes: Mapping[str, int]) -> int | None:
    stem = axis.rstrip("s")
    for name in (
        axis,
        stem,
        f"in_{axis}",
        f"n_{axis}",
        f"num_{axis}",
        f"{stem}s",
        f"{stem}_size",
        f"{stem}_dim",
        f"in_{stem}s",
    ):
        if name in sizes:
            return sizes[name]
    starts = [v for n, v in sizes.items() if len(stem) >= 3 and n.startswith(stem[:4])]
    return starts[0] if starts else None


def _widths(model: nn.Module, sizes: Mapping[str, int]) -> list[int]:
    """Feature widths worth trying: what the first modules take, then sizes by name."""
    found: list[int] = []
    for module in model.modules():
        width = _takes(module)
        if width and width not in found:
            found.append(width)
        if len(found) >= 4:
            break
    found[1:1] = [sizes[n] for n in _WIDTH_NAMES if n in sizes and sizes[n] not in found][:2] if found else []
    found += [sizes[n] for n in _WIDTH_NAMES if n in sizes and sizes[n] not in found]
    return found or [16]


def _takes(module: nn.Module) -> int | None:
    if isinstance(module, nn.Linear):
        return int(module.in_features)
    if isinstance(module, nn.Conv1d) or (isinstance(module, nn.Conv2d) and module.in_channels > 4):
        return int(module.in_channels)
    if isinstance(module, nn.MultiheadAttention):
        return int(module.embed_dim)
    if isinstance(module, nn.RNNBase):
        return int(module.input_size)
    if isinstance(module, nn.LayerNorm):
        return int(module.normalized_shape[-1])
    return None


def _channels(model: nn.Module, sizes: Mapping[str, int]) -> list[int]:
    conv = next((m.in_channels for m in model.modules() if isinstance(m, nn.Conv2d)), None)
    named = _first_size(sizes, _CHANNEL_NAMES)
    return list(dict.fromkeys(c for c in (conv, named, 3) if c))[:2]


def _sides(model: nn.Module, sizes: Mapping[str, int]) -> list[int]:
    named = _first_size(sizes, _IMAGE_NAMES)
    return list(dict.fromkeys(s for s in (named, 32, 64, 16, 24, 224) if s))
