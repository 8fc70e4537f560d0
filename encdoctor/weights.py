"""Puts saved weights into a model: safetensors, shards with an index, or a state dict without code in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encdoctor.model import CannotJudge

if TYPE_CHECKING:
    from torch import Tensor, nn

    from encdoctor.target import Loaded

# Under these names training scripts put the state dict into a larger checkpoint.
_HOLDERS = ("state_dict", "model_state_dict", "model")


def with_weights(loaded: Loaded, path: Path) -> Loaded:
    """The target with the weights of a file, in each instance that is built."""
    state = read_state(path)
    note = put(state, loaded.model, path)
    build = loaded.rebuild
    return replace(loaded, notes=(*loaded.notes, note), rebuild=build and _filled(build, state, path))


def read_state(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by name. Nothing in it is executed."""
    if not path.is_file():
        raise CannotJudge(f"there is no file `{path}`: give safetensors, an index of shards, or a state dict")
    try:
        if path.name.endswith(".index.json"):
            return _shards(path)
        return _tensors(path)
    except CannotJudge:
        raise
    except Exception as error:  # each format has its own errors
        raise CannotJudge(
            f"`{path}` cannot be read as weights ({type(error).__name__}): save the model's state_dict(), "
            "best as safetensors"
        ) from error


def put(state: Mapping[str, Tensor], model: nn.Module, path: Path) -> str:
    """Loads the tensors that the model has; the note says what was left over."""
    wanted = model.state_dict()
    named = _without_prefixes(state, list(wanted))
    missing = [name for name in wanted if name not in named]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise CannotJudge(f"`{path}` has no `{missing[0]}`{more}: are these the weights of this model?")
    for name, tensor in wanted.items():
        if named[name].shape != tensor.shape:
            sizes = f"{tuple(named[name].shape)}, and the model has {tuple(tensor.shape)}"
            raise CannotJudge(f"`{path}` holds `{name}` of shape {sizes}: give the sizes with --arg")
    model.load_state_dict({name: named[name] for name in wanted})
    left = len(named) - len(wanted)
    return f"weights of {path}" + (f", {left} tensors of which the model does not have" if left else "")


def _filled(build: Callable[[], nn.Module], state: Mapping[str, Tensor], path: Path) -> Callable[[], nn.Module]:
    def rebuild() -> nn.Module:
        model = build()
        put(state, model, path)
        return model

    return rebuild


def _shards(index: Path) -> dict[str, Tensor]:
    files = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    return {name: tensor for file in files for name, tensor in read_state(index.parent / file).items()}


def _tensors(path: Path) -> dict[str, Tensor]:
    import torch

    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return dict(load_file(path))
    return _held(torch.load(path, map_location="cpu", weights_only=True), path)


def _held(saved: Any, path: Path) -> dict[str, Tensor]:
    import torch

    for name in _HOLDERS:
        if isinstance(saved, Mapping) and isinstance(saved.get(name), Mapping):
            saved = saved[name]
    tensors = {k: v for k, v in saved.items() if isinstance(v, torch.Tensor)} if isinstance(saved, Mapping) else {}
    if not tensors:
        raise CannotJudge(f"`{path}` holds no tensors by name: save the model's state_dict()")
    return tensors


def _without_prefixes(state: Mapping[str, Tensor], wanted: list[str]) -> dict[str, Tensor]:
    """The tensors under the model's names: without what DDP, torch.compile or an outer model put in front."""
    bare = {name.replace("_orig_mod.", ""): tensor for name, tensor in state.items()}
    if not wanted:
        return bare
    prefixes = {name.removesuffix(wanted[0]) for name in bare if name.endswith(wanted[0])}
    best = max(sorted(prefixes), key=lambda p: sum(p + name in bare for name in wanted), default="")
    return {name.removeprefix(best): tensor for name, tensor in bare.items() if name.startswith(best)}
