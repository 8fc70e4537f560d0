"""Examines Transformer encoders: what is wrong, where, why, the proof, and the fix.

Importing this loads neither torch nor any check; `encdoctor.check` loads them when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from encdoctor.api import Contract, check
    from encdoctor.model import CannotJudge

__version__ = "0.1.0"
__all__ = ["CannotJudge", "Contract", "__version__", "check"]

_HOMES = {"check": "encdoctor.api", "Contract": "encdoctor.api", "CannotJudge": "encdoctor.model"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'encdoctor' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
