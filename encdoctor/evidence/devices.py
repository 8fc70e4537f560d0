"""Tensors that a model uses and does not own, and what a move to another device does with them."""

from __future__ import annotations

from dataclasses import dataclass

from encdoctor.model import Place


@dataclass(frozen=True)
class LooseTensor:
    """A tensor in a plain attribute that the forward reads. `name` is its path, `shape` its size."""

    name: str
    shape: tuple[int, ...]
    place: Place
    container: str = ""


@dataclass(frozen=True)
class LooseTensors:
    """All of them, and the text of what the forward raises on the meta device ("" where it runs there).

    `about_devices` tells that the text is about tensors on different devices; `at` is where it was raised.
    """

    tensors: tuple[LooseTensor, ...]
    raised: str = ""
    about_devices: bool = False
    at: tuple[Place, ...] = ()


@dataclass(frozen=True)
class MetaRun:
    """A forward on the meta device, where every tensor that is made elsewhere is left behind.

    `about_devices` tells that it raised because of that, `at` where, and `made` lists the lines of that forward on
    which a tensor is made. `loose` tells that a plain attribute is to blame.
    """

    raised: str
    about_devices: bool
    at: tuple[Place, ...] = ()
    made: tuple[Place, ...] = ()
    loose: bool = False
