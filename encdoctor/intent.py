"""What the author says he meant, with where he says it.

Behaviour alone cannot tell a CLIP text tower from an encoder that got a causal mask by mistake. Sources, strongest
first: the user's options and configuration, constructor arguments and config values, docstrings and comments of
signatures, names that the source reads.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from encdoctor.signatures import as_mapping, comments, config_objects, parse, source_of

if TYPE_CHECKING:
    from torch import nn

    from encdoctor.target import Origin


class What(StrEnum):
    """What can be declared."""

    CAUSAL = "causal"
    WINDOW = "window"
    PREFIX = "prefix"
    SHARED = "shared"
    FROZEN = "frozen"
    NO_POSITIONS = "no-positions"
    LEFT_PADDING = "left-padding"
    EXCLUDE_SELF = "exclude-self"
    HALF = "half"


@dataclass(frozen=True)
class Declared:
    """One thing that was meant. `value` is True, False or a number (a window's width); `source` says where."""

    what: What
    value: bool | int | str
    source: str


@dataclass(frozen=True)
class Intent:
    """All that was declared. `installed` tells that the target lies in an installed package, not in a project."""

    declared: tuple[Declared, ...] = ()
    installed: bool = False

    def __iter__(self) -> Iterator[Declared]:
        return iter(self.declared)

    def of(self, what: What) -> Declared | None:
        """The strongest declaration of `what`, or None."""
        return next((d for d in self.declared if d.what is what), None)

    def says(self, what: What) -> bool:
        """Whether `what` was declared with a value that is not False."""
        declared = self.of(what)
        return declared is not None and declared.value is not False


def read_intent(model: nn.Module, origin: Origin, options: tuple[str, ...]) -> Intent:
    """Everything that is declared about `model`, the strongest source first."""
    own = _own_classes(model, origin)
    found = [
        *_from_options(options),
        *_from_settings(model, type(model), own, "{name}={value} of the model"),
        *(
            d
            for c in config_objects(model)
            for d in _from_settings(c, type(model), own, "{name}={value} in the configuration")
        ),
        # whoever builds an installed class gave it arguments of his own: its defaults say nothing of this instance
        *(() if origin.installed else _from_constructor(model)),
        *_from_texts([(type(model), True)], model),
        *_from_texts([(type(c), False) for c in config_objects(model) if _is_own(type(c), origin)], model),
        *_from_texts([(cls, False) for cls in own if cls is not type(model)], model),
        *_from_parts(model, origin),
        *_from_names([type(model)]),
    ]
    return Intent(tuple(dict.fromkeys(found)), origin.installed)


# ---- options -------------------------------------------------------------------------------------------------


def _from_options(options: tuple[str, ...]) -> Iterator[Declared]:
    for option in options:
        name, _, value = option.partition("=")
        denied = name.startswith("not-")
        name = name.removeprefix("not-")
        if name in {what.value for what in What}:
            yield Declared(What(name), False if denied else _literal(value), f"option --intent {option}")


def _literal(value: str) -> bool | int | str:
    if value.lower() in ("", "true", "yes"):
        return True
    if value.lower() in ("false", "no"):
        return False
    return int(value) if value.isdigit() else value


# ---- names with values ---------------------------------------------------------------------------------------

_FLAGS: tuple[tuple[What, re.Pattern[str]], ...] = (
    (
        What.CAUSAL,
        re.compile(r"^(is_)?(causal|autoregressive|unidirectional|left_to_right)(_attention|_mask)?$|^use_causal"),
    ),
    (
        What.SHARED,
        re.compile(
            r"^(share|tie)_?(all_)?(layers?|weights|params|parameters|blocks?)$|^shared_(layers?|weights|block)$"
        ),
    ),
    (What.FROZEN, re.compile(r"^freeze(_\w+)?$|^frozen(_\w+)?$")),
    (What.HALF, re.compile(r"^(use_)?(fp16|half|bf16|amp|mixed_precision)$")),
)
_NUMBERS: tuple[tuple[What, re.Pattern[str]], ...] = (
    (
        What.WINDOW,
        re.compile(
            r"^(attention_window|sliding_window|local_attention|local_window(_size)?|window(_size)?|attn_window)$"
        ),
    ),
    (What.PREFIX, re.compile(r"^(n_)?prefix(_len|_length|_size|_tokens)?$|^prefix_lm$")),
)
_BIDIRECTIONAL = re.compile(r"^(is_)?bidirectional$")
_POSITIONS = re.compile(
    r"^(use_)?(pos|position|positions|position_embeddings?|pos_embed|positional_encoding|position_embedding_type|pos_emb)$"
)
_READS_ATTENTION = re.compile(r"softmax|attention|attn", re.IGNORECASE)


def _from_settings(holder: object, root: type, own: list[type], source: str) -> Iterator[Declared]:
    """Declarations by the names and values of an object's fields."""
    for name, value in as_mapping(holder).items():
        if isinstance(name, str) and (declared := _setting(name.lower(), value, own)):
            yield Declared(*declared, source.format(name=name, value=value))


def _setting(name: str, value: Any, own: list[type]) -> tuple[What, bool | int | str] | None:
    for what, pattern in _FLAGS:
        if pattern.search(name) and isinstance(value, bool):
            part = name.partition("_")[2] if what is What.FROZEN else ""
            return (what, part or True) if value else ((what, False) if what is What.CAUSAL else None)
    if isinstance(value, (list, tuple)) and value and all(isinstance(v, int) for v in value):
        value = max(value)  # one a layer
    for what, pattern in _NUMBERS:
        if pattern.search(name) and isinstance(value, int) and value > 0:
            if name in ("window", "window_size") and not _used_beside_attention(name, own):
                return None
            return what, True if isinstance(value, bool) else value
    if _BIDIRECTIONAL.search(name) and isinstance(value, bool):
        return What.CAUSAL, not value
    if _POSITIONS.search(name) and (value is False or value in ("none", "no")):
        return What.NO_POSITIONS, True
    if name == "padding_side" and value == "left":
        return What.LEFT_PADDING, True
    if name == "is_decoder" and value is True:
        return What.CAUSAL, True
    return None


def _used_beside_attention(name: str, own: list[type]) -> bool:
    """Whether a class that attends reads that name: a window of a time series is no attention window."""
    sources = (source_of(cls) for cls in own)
    return any(_READS_ATTENTION.search(s) and re.search(rf"\.{name}\b|\b{name}\s*=", s) for s in sources)


def _from_constructor(model: nn.Module) -> Iterator[Declared]:
    """Constructor defaults that no attribute overrides."""
    try:
        parameters = inspect.signature(type(model).__init__).parameters
    except (TypeError, ValueError):
        return
    for name, parameter in parameters.items():
        if name not in vars(model) and (declared := _setting(name.lower(), parameter.default, [type(model)])):
            yield Declared(*declared, f"{name}={parameter.default} in the signature of {type(model).__name__}")


def _from_parts(model: nn.Module, origin: Origin) -> Iterator[Declared]:
    """Flags that submodules carry, where they are set."""
    for path, module in model.named_modules():
        if module is model or type(module).__module__.startswith("torch."):
            continue
        for name, value in vars(module).items():
            if value is True and _FLAGS[0][1].search(name):
                yield Declared(What.CAUSAL, True, f"{name}=True of {path}")
                return


def _from_names(classes: list[type]) -> Iterator[Declared]:
    for cls in classes:
        words = re.findall(r"[A-Z][a-z]+|[A-Z]+(?![a-z])", cls.__name__)
        if {"Causal", "Autoregressive"} & set(words):
            yield Declared(What.CAUSAL, True, f"name of {cls.__name__}")
        if "Prefix" in words:
            yield Declared(What.PREFIX, True, f"name of {cls.__name__}")
        if re.search(r"Shared(Layer|Weight|Block)", cls.__name__):
            yield Declared(What.SHARED, True, f"name of {cls.__name__}")


# ---- texts ---------------------------------------------------------------------------------------------------

# Longer texts are reference pages that mention everything; their first paragraph says what the class is.
LONGEST_DOC = 1200

# (what, value): phrases that say so, as regular expressions
_SAYS: dict[tuple[What, bool], tuple[str, ...]] = {
    (What.CAUSAL, True): (
        r"causal(?:ly)?|auto-?regressive|left[- ]to[- ]right|uni-?directional|decoder[- ]only",
        r"only (?:sees?|attends? to|looks? at) (?:the )?(?:past|earlier|previous)",
        r"cannot (?:see|look at) (?:the )?(?:future|later)",
    ),
    (What.CAUSAL, False): (r"bi-?directional(?:ly)?|in both directions",),
    (What.WINDOW, True): (
        r"sliding[- ]window|local window|banded|block-?local|neighbou?rhood attention",
        r"(?:local(?:ised|ized)?|windowed) (?:self-)?attention",
        r"only to (?:its )?(?:near|neighbou?r)\w*|sees? \S+ \w+ (?:to|on) (?:each|either) side",
    ),
    (What.PREFIX, True): (
        r"prefix (?:encoder|mask|lm|language|attention)",
        r"prefix is (?:seen|visible)|bidirectional prefix",
    ),
    (What.EXCLUDE_SELF, True): (
        r"exclud(?:es?|ed|ing) (?:itself|(?:the |its |their )?(?:own|self|query|same) (?:position|token|key)s?)",
        r"(?:all|every) other (?:tokens?|positions?|keys?)|every\w* but itself|other tokens than itself",
        r"locality self-attention|(?:diagonal|self)[- ]mask(?:ed|ing)?",
        r"(?:does not|cannot|never) (?:attend to|see) itself",
    ),
    (What.SHARED, True): (
        r"shar(?:e|es|ed|ing) (?:their |its |the )?(?:same )?(?:weights?|parameters?)|weight[- ](?:sharing|tied)",
        r"(?:one|same|single) (?:layer|block)[^.]{0,40}(?:shared|reused|repeated|applied|run)\b",
        r"layers? (?:is |are )?shared|shared (?:layer|block|on purpose|across layers|by all layers|between layers)",
        r"as in albert|universal transformer",
    ),
    (What.FROZEN, True): (r"frozen|not trained|kept fixed|non-?trainable|freezes?",),
    (What.NO_POSITIONS, True): (
        r"(?:order|permutation)[- ](?:in|equi)variant|order[- ](?:free|blind)|order (?:does|do) not matter",
        r"set (?:encoder|transformer)|unordered|set of \w+ in|ignores? (?:the )?order",
        r"no positions?|no position(?:al)? (?:embedd|encod|inform)\w+|without (?:any )?position\w*",
    ),
    (What.LEFT_PADDING, True): (
        r"left[- ]padd(?:ed|ing)|pads?(?:ded|ding)? on the left|padding (?:is )?on (?:the left|either side)",
    ),
    (What.HALF, True): (r"half precision|mixed precision|autocast|half\(\)|b?float16(?:\(\))?|[fb]p?16",),
}
_PHRASES = tuple(
    (what, value, re.compile(rf"\b(?:{'|'.join(phrases)})(?!\w)", re.IGNORECASE))
    for (what, value), phrases in _SAYS.items()
)
_BIDIRECTIONAL_PREFIX = re.compile(r"\bprefix\b", re.IGNORECASE)
_NEGATED = re.compile(
    r"\b(?:not|no|non|never|without|instead of|unlike|isn't|rather than|neither|nor)\b[\s-]*(?:\w+[\s-]+){0,2}$",
    re.IGNORECASE,
)
# A sentence with one of these mentions a possibility or something else, it does not say what this class is.
_CONDITIONAL = re.compile(
    r"\b(?:if|when|whether|optional(?:ly)?|can be|could be|may be|might|unless|e\.g\.|for example|see also|compare|"
    r"such as|either)\b|\bdecoders?\b(?![- ]only)|\bgenerator\b",
    re.IGNORECASE,
)


def _from_texts(classes: list[tuple[type, bool]], model: nn.Module) -> Iterator[Declared]:
    for cls, is_target in classes:
        for where, text in _texts(cls, is_target):
            for sentence in re.split(r"(?<=[.;:!?])\s+|\n\s*\n", text):
                yield from _declared_in(sentence, where, model)


def _texts(cls: type, is_target: bool) -> Iterator[tuple[str, str]]:
    name = cls.__name__
    if cls.__module__.startswith("torch."):
        return
    if (doc := cls.__dict__.get("__doc__")) and not doc.startswith(f"{name}("):
        yield f"docstring of {name}", _head(doc)
    forward = cls.__dict__.get("forward")
    if is_target and forward is not None and forward.__doc__ and len(forward.__doc__) <= LONGEST_DOC:
        yield f"docstring of {name}.forward", forward.__doc__
    if not is_target and hasattr(cls, "forward"):
        return
    if is_target and (init := getattr(cls.__dict__.get("__init__"), "__doc__", None)):
        yield f"docstring of {name}.__init__", _head(init)
    for comment in _declaring_comments(cls):
        yield f"comment in {name}", comment


def _declaring_comments(cls: type) -> Iterator[str]:
    """Comments beside fields and in the constructor; those of other methods tell how, not what is meant."""
    source = source_of(cls)
    other = [
        range(node.lineno, (node.end_lineno or node.lineno) + 1)
        for node in ast.walk(parse(source))
        if isinstance(node, ast.FunctionDef) and node.name != "__init__"
    ]
    yield from (text for line, text in comments(source) if not any(line in lines for lines in other))


def _head(doc: str) -> str:
    doc = inspect.cleandoc(doc)
    return doc if len(doc) <= LONGEST_DOC else re.split(r"\n\s*\n", doc)[0]


def _declared_in(sentence: str, where: str, model: nn.Module) -> Iterator[Declared]:
    said = " ".join(sentence.split())
    prefixed = _BIDIRECTIONAL_PREFIX.search(said) is not None
    for what, value, pattern in _PHRASES:
        match = pattern.search(said)
        if match is None or (what is What.CAUSAL and not value and prefixed):
            continue
        around = said[: match.start()] + " " + said[match.end() :]
        if what not in (What.LEFT_PADDING, What.HALF) and _CONDITIONAL.search(around):
            continue
        negated = _NEGATED.search(said[: match.start()]) is not None
        if negated and what not in (What.CAUSAL, What.SHARED, What.WINDOW):
            continue
        stated = _which_half(said) if what is What.HALF else value is not negated
        yield Declared(what, stated, f'{where}: "{_short(said)}"')


def _which_half(text: str) -> bool | str:
    """The half precision that a text names, True where it names both or neither."""
    brain = re.search(r"\bbf(?:loat)?16\b", text, re.IGNORECASE) is not None
    ieee = re.search(r"\.half\(|\bf(?:loat|p)?16\b", text, re.IGNORECASE) is not None
    return True if brain is ieee else "bfloat16" if brain else "float16"


def _short(text: str) -> str:
    return text if len(text) <= 90 else text[:87].rstrip() + "…"


# ---- whose classes -------------------------------------------------------------------------------------------


def _own_classes(model: nn.Module, origin: Origin) -> list[type]:
    classes = dict.fromkeys(type(module) for module in model.modules())
    return [cls for cls in classes if _is_own(cls, origin)]


def _is_own(cls: type, origin: Origin) -> bool:
    try:
        file = inspect.getsourcefile(cls) or ""
    except (OSError, TypeError):
        file = ""
    return origin.owns(cls.__module__, file)
