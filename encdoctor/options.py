"""What the user asked for: the options of `check`, whichever door they came in by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from encdoctor.contract import InputKind
from encdoctor.intent import What
from encdoctor.model import CannotJudge, Severity


class UsageError(CannotJudge):
    """Something was asked for that does not exist or does not fit; the sentence names what does."""


@dataclass(frozen=True)
class Options:
    """Names follow the command line (`encdoctor check --help`); None means not given.

    `call` holds the contract's overrides (input, mask_arg, mask_true, lengths_arg, pad_id, batch_first,
    output), `arguments` the constructor's, `intent` what was declared ("causal", "window=4").
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    fast: bool = False
    full: bool = False
    seed: int = 0
    device: str = "cpu"
    dtype: str | None = None
    time_limit: float | None = None
    module: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    call: Mapping[str, Any] = field(default_factory=dict)
    intent: tuple[str, ...] = ()
    example: str | None = None
    weights: str | None = None
    severity: Mapping[str, str] = field(default_factory=dict)


# ---- settings: the options as they are written in a file or on the command line --------------------------

CALL_SETTINGS = ("input", "mask-arg", "mask-true", "lengths-arg", "pad-id", "batch-first", "output")

# What may be said of one target, and of what type it is. A list may be written as its only item.
TARGET_SETTINGS: dict[str, type] = {
    "select": list,
    "ignore": list,
    "fast": bool,
    "seed": int,
    "device": str,
    "time-limit": float,
    "arg": dict,
    "input": str,
    "mask-arg": str,
    "mask-true": str,
    "lengths-arg": str,
    "pad-id": int,
    "batch-first": bool,
    "output": str,
    "weights": str,
    "intent": list,
    "severity": dict,
}

# What holds for a run as a whole.
RUN_SETTINGS: dict[str, type] = {"fail-on": str, "json": str, "html": str, "isolate": bool}

CHOICES: dict[str, tuple[str, ...]] = {
    "input": tuple(kind.value for kind in InputKind),
    "mask-true": ("keep", "drop", "additive"),
    "fail-on": ("error", "warning", "note", "never"),
}

_WORDS = {
    list: "a list of strings",
    dict: "a table",
    bool: "true or false",
    int: "a whole number",
    str: "a string",
}


def checked_settings(settings: Mapping[str, Any], known: Mapping[str, type], where: str) -> dict[str, Any]:
    """The settings with lists as lists; `UsageError` for the first that does not fit, with `where` it is."""
    return {name: _checked(name, value, known, where) for name, value in settings.items()}


def layered(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Settings one over the other, the last the strongest; `ignore` adds up, and tables are joined."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            before = merged.get(name)
            if name == "ignore" and before:
                value = [*before, *(item for item in value if item not in before)]
            elif isinstance(value, dict) and isinstance(before, dict):
                value = {**before, **value}
            merged[name] = value
    return merged


def options_from(settings: Mapping[str, Any]) -> Options:
    """The options that checked settings amount to; what holds for the run as a whole is left out."""
    _check_intent(settings.get("intent", ()))
    _check_severity(settings.get("severity", {}))
    plain = ("fast", "seed", "device", "weights")
    return Options(
        select=tuple(settings.get("select", ())),
        ignore=tuple(settings.get("ignore", ())),
        intent=tuple(settings.get("intent", ())),
        time_limit=settings.get("time-limit"),
        arguments=dict(settings.get("arg", {})),
        severity=dict(settings.get("severity", {})),
        call={name.replace("-", "_"): settings[name] for name in CALL_SETTINGS if name in settings},
        **{name: settings[name] for name in plain if name in settings},
    )


def nearest(name: str, known: Mapping[str, Any] | tuple[str, ...]) -> str:
    """The known name that was most likely meant, as the end of a sentence, or all of them."""
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean `{near[0]}`?" if near else f"known are {', '.join(known)}"


def _checked(name: str, value: Any, known: Mapping[str, type], where: str) -> Any:
    if name not in known:
        raise UsageError(f"{where}: there is no option `{name}`: {nearest(name, known)}")
    kind = known[name]
    if kind is list and isinstance(value, str):
        value = [value]
    if kind is float:
        return _positive(name, value, where)
    fits = isinstance(value, kind) and not (kind is int and isinstance(value, bool))
    if not fits or (kind is list and not all(isinstance(item, str) for item in value)):
        raise UsageError(f"{where}: `{name}` must be {_WORDS[kind]}, not {value!r}")
    if name in CHOICES and value not in CHOICES[name]:
        raise UsageError(f"{where}: `{name}` must be one of {', '.join(CHOICES[name])}, not {value!r}")
    return value


def _positive(name: str, value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise UsageError(f"{where}: `{name}` must be a number of seconds above 0, not {value!r}")
    return float(value)


def _check_intent(intents: list[str] | tuple[str, ...]) -> None:
    for intent in intents:
        name = intent.partition("=")[0]
        if name not in tuple(What):
            raise UsageError(f"there is no intent `{name}`: {nearest(name, tuple(What))}")


def _check_severity(levels: Mapping[str, Any]) -> None:
    for rule, level in levels.items():
        if level not in tuple(Severity):
            raise UsageError(f"the severity of {rule} must be error, warning or note, not {level!r}")
