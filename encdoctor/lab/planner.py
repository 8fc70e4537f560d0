"""Decides what is gathered for the selected checks, and in which order.

Escalation is inside the gatherers: a costly part is measured only after a cheap one showed a symptom. What is left to
plan is the union of what the checks declare, cheap first, and what a fast run leaves out.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from encdoctor.lab.gatherers import GATHERERS, TRAINS


def plan(needs: Iterable[Mapping[str, Any]]) -> list[type]:
    """The evidence types that some check declares, in the order in which they are gathered."""
    wanted = {needed(hint)[0] for need in needs for hint in need.values()}
    return [kind for kind in GATHERERS if kind in wanted]


def needed(hint: Any) -> tuple[type, bool]:
    """(evidence type, whether the check can do without) of an annotation: `X`, or `X | None`."""
    if isinstance(hint, types.UnionType):
        return next(arg for arg in typing.get_args(hint) if arg is not types.NoneType), True
    return hint, False


def left_out(needs: Mapping[str, Any], fast: bool) -> str:
    """Why a check with these needs is skipped; empty where it is not."""
    if fast and any(needed(hint)[0] in TRAINS for hint in needs.values()):
        return "--fast leaves training out"
    return ""
