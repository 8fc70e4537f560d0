"""Turns places into what a report shows: relative paths, the line, the lines around it, fingerprints."""

from __future__ import annotations

import hashlib
import linecache
import re
from pathlib import Path

from encdoctor.model import Place, Where

AROUND = 2


def to_where(place: Place) -> Where:
    """The place with its source."""
    code = linecache.getline(place.file, place.line).strip() if place.line else ""
    lines = range(max(1, place.line - AROUND), place.line + AROUND + 1) if code else ()
    excerpt = [(n, linecache.getline(place.file, n).rstrip("\n")) for n in lines]
    last = len(linecache.getlines(place.file)) if code else 0
    return Where(
        place.module,
        place.class_name,
        relative(place.file),
        place.line,
        code,
        [(n, text) for n, text in excerpt if n <= last],
    )


def relative(file: str) -> str:
    """The path from the working directory where it lies below it, else as it is."""
    if not file:
        return ""
    path, here = Path(file), Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else file


def fingerprint(slug: str, place: Place | None, about: str) -> str:
    """The same while the faulty line's text and the kind of module stay the same, wherever the line moves to."""
    parts = [slug, about]
    if place is not None:
        # layers.0 and layers.5 are the same place for a fault that all layers have
        parts += [re.sub(r"\d+", "*", place.module), linecache.getline(place.file, place.line).strip()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
