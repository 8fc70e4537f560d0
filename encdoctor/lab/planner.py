"""Decides what is gathered for the selected checks, and in which order.

Escalation is inside the gatherers: a costly part is measured only after a cheap one showed a symptom. What is left to
plan is the union of what the checks declare, cheap first, and what a fast run leaves out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from encdoctor.lab.gatherers import GATHERERS, TRAINS


def plan(needs: Iterable[Mapping[str, Any]]) -> list[type]:
    """The evidence types that some check declares, in the order in which they are gathered."""
    wanted = {kind for need in needs for kind in need.values()}
    return [kind for kind in GATHERERS if kind in wanted]


def left_out(needs: Mapping[str, Any], fast: bool) -> str:
    """Why a check with these needs is skipped; empty where it is not."""
    if fast and any(kind in TRAINS for kind in needs.values()):
        return "--fast leaves training out"
    return ""
