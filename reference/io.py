"""Encoders on disk: safetensors, with the config in the file's metadata. No pickle, nothing executed."""

import json
from dataclasses import asdict
from pathlib import Path

from torch import nn

from encdoctor.reference.config import EncoderConfig
from encdoctor.reference.encoder import Encoder


def save(encoder: Encoder, path: str | Path) -> None:
    """Writes the weights and the config."""
    from safetensors.torch import save_file

    state = {name: tensor.contiguous() for name, tensor in encoder.state_dict().items()}
    save_file(state, path, metadata={"config": json.dumps(asdict(encoder.config))})


def load(path: str | Path, embedding: nn.Module | None = None) -> Encoder:
    """Reads what :func:`save` wrote, in eval mode and on the CPU.

    An encoder that reads something other than tokens needs its ``embedding``, whose weights are then filled.
    """
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        if "config" not in metadata:
            raise ValueError(f"{path} has no encoder config in its metadata: it is not a file of save()")
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    encoder = Encoder(EncoderConfig(**json.loads(metadata["config"])), embedding)
    encoder = encoder.to(next(iter(state.values())).dtype)
    encoder.load_state_dict(state)
    return encoder.eval()
