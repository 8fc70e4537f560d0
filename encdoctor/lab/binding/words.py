"""What sentences about an argument mean: a mask's True, the axes of a shape, a pad id, a kind of input."""

from __future__ import annotations

import re
from collections.abc import Sequence

from encdoctor.contract import InputKind, MaskMeaning

KEEP = MaskMeaning.KEEP
DROP = MaskMeaning.DROP

_KEEP_WORDS = (
    "real valid keep keeps kept attend attends attended attendable exist exists present recorded observed actual "
    "visible used unmasked seen allowed active live known"
).split()
_DROP_WORDS = (
    "pad pads padding padded ignore ignores ignored ignoring mask masked hidden hide hides blocked block blocks drop "
    "drops dropped missing invalid empty absent excluded exclude excludes skip skipped forbidden disallowed"
).split()
# Words that say keep only where nothing stronger is said: "True where the token is padding".
_WEAK_KEEP_WORDS = "token tokens unit units word words frame frames item items step steps data content element".split()
_NEGATIONS = "not no non never without nothing neither isn aren nor".split()

_TRUE = r"(?:true|1s?|ones?|non-?zero)"
_FALSE = r"(?:false|0s?|zeros?)"
_LITERAL = re.compile(rf"(?<![\w.])[`*'\"]*(?:({_TRUE})|({_FALSE}))\b[`*'\"]*\W*([^.;,\n)]*)", re.IGNORECASE)
_REVERSED = re.compile(
    rf"\b({'|'.join(_KEEP_WORDS + _DROP_WORDS)})\b([^.;\n]{{0,40}}?)\b(?:is|are|=|as|marked|with|set to)\W+"
    rf"(?:\w+\W+){{0,2}}?[`*]*(?:({_TRUE})|({_FALSE}))\b",
    re.IGNORECASE,
)

BATCH_NAMES = frozenset("b batch batch_size batchsize bs bsz bz nbatch n_batch num_batch batches bsize nb".split())
SEQUENCE_NAMES = frozenset(
    "s t l len length time times seq seqlen seq_len seq_length sequence sequence_length src_len source_length tokens "
    "n_tokens num_tokens token steps timesteps time_steps frames units items samples positions words points nodes slen "
    "max_len tgt_len context_length input_length n_frames num_frames source_len lengths events elements size_t maxlen "
    "num_steps seqs max_length entries sentences phonemes characters chars residues atoms channels_time q".split()
)
_SHAPE = re.compile(
    r"[(\[]\s*((?:[`*]*[\w ./<=*+-]+[`*]*\s*[,x×]\s*)+[`*]*[\w ./<=*+-]*|\s*(?:b|batch|batch_size|n)\s*,?)\s*[)\]]",
    re.I,
)
_BARE_SHAPE = re.compile(r"\b((?:batch|b|seq|s|t|time|len|length)(?:\s*[x×]\s*\w+)+)", re.I)


def meaning_of(text: str) -> MaskMeaning | None:
    """What a sentence says that a mask's True (or 1) means, None where it says nothing."""
    flat = re.sub(r"\s+", " ", strip_shapes(text))
    if re.search(
        r"\badditive\b|\badded to (?:the )?(?:attention )?(?:scores|logits|weights)|-\s?inf\w*\W+(?:at|where|for|on)\b",
        flat,
        re.I,
    ):
        return MaskMeaning.ADDITIVE
    for true, _, clause in _LITERAL.findall(flat):
        meaning = _polarity(clause)
        if meaning is not None:
            return meaning if true else _opposite(meaning)
    for word, between, true, _ in _REVERSED.findall(flat):
        before = flat[: flat.lower().find(word.lower())].split()[-2:]
        meaning = _polarity(" ".join(before) + " " + word)
        if meaning is not None and not re.search(r"\bnot\b", between, re.I):
            return meaning if true else _opposite(meaning)
    return None


def _polarity(clause: str) -> MaskMeaning | None:
    clause = re.split(r"\b(?:true|false|[01])\b", clause.lower())[0]  # up to what is said of the other value
    words = re.findall(r"[a-z]+", clause)[:14]
    for known, meaning in ((_KEEP_WORDS + _DROP_WORDS, None), (_WEAK_KEEP_WORDS, KEEP)):
        for place, word in enumerate(words):
            if word not in known:
                continue
            said = meaning or (KEEP if word in _KEEP_WORDS else DROP)
            negated = any(w in _NEGATIONS for w in words[max(0, place - 3) : place])
            return _opposite(said) if negated else said
    return None


def _opposite(meaning: MaskMeaning) -> MaskMeaning:
    return DROP if meaning is KEEP else KEEP


def dtype_of(text: str, annotation: str = "") -> str:
    """The dtype that a mask's text or annotation names: "bool", "int64", "float" or ""."""
    for said in (text[:200], annotation):
        if re.search(r"bool", said, re.I):
            return "bool"
        if re.search(r"\bint\w*|LongTensor|\blong\b", said):
            return "int64"
        if re.search(r"\bfloat\w*|FloatTensor|\b1\.0\b", said):
            return "float"
    return "int64" if re.search(r"\b1s?\b\s*(?:=|for|where|means|at|on|marks|is)", strip_shapes(text)) else ""


def shapes_in(text: str) -> list[tuple[str, ...]]:
    """Every shape that a text writes, as lower-case axis names: "(batch, time, 32)" → ("batch", "time", "32")."""
    found = []
    for match in [*_SHAPE.finditer(text), *_BARE_SHAPE.finditer(text)]:
        axes = tuple(a.strip(" `*").lower().replace(" ", "_") for a in re.split(r"[,×]|\bx\b(?=\s)", match.group(1)))
        axes = tuple(re.split(r"<=|≤", a)[0] for a in axes if a)
        if axes and any(is_batch(a, axes) for a in axes):
            found.append(axes)
    return found


def strip_shapes(text: str) -> str:
    """The text without its shapes, whose numbers are no literals."""
    return re.sub(r"[(\[][^()\[\]=]*,[^()\[\]=]*[)\]]", " ", text)


def is_batch(axis: str, axes: Sequence[str]) -> bool:
    """Whether an axis name means the batch; a bare n does where nothing else can."""
    return axis in BATCH_NAMES or (axis == "n" and not any(a in BATCH_NAMES for a in axes))


def is_sequence(axis: str, axes: Sequence[str]) -> bool:
    """Whether an axis name means the sequence; a bare n does where another axis is the batch."""
    return axis in SEQUENCE_NAMES or (axis == "n" and any(a in BATCH_NAMES for a in axes))


def batch_first_of(axes: Sequence[str]) -> bool | None:
    """Whether these axis names put the batch before the sequence, None where they do not name both."""
    batch = next((i for i, a in enumerate(axes) if is_batch(a, axes)), None)
    sequence = next((i for i, a in enumerate(axes) if is_sequence(a, axes)), None)
    if batch is not None and batch <= 1 and (sequence is not None or batch == 0):
        return batch == 0
    if sequence is not None and sequence <= 1 and len(axes) > 1:
        return sequence == 1
    return None


def order_in(text: str) -> bool | None:
    """Batch first, True, or sequence first, False, as prose says it of inputs (not of what runs inside)."""
    flat = re.sub(r"\s+", " ", text)
    if re.search(
        r"\b(?:sequence|seq|time|length)[- ](?:first|major)\b(?! \w+ inside)(?![^.]{0,30}\binside\b)", flat, re.I
    ):
        return False
    if re.search(r"\bbatch[- ]first\b(?!\s*=\s*False)", flat, re.I):
        return True
    return None


def pad_id_in(text: str) -> int | None:
    """The id that a text calls padding: "0 = padding", "pad id is 3", "padded with 0"."""
    patterns = (
        r"(?<![\w.,-])(\d+)\W{0,3}\s*(?:=|==|is|as|for|marks|means|:|stands for)\s*(?:the |a )?[`*]*pad",
        r"\bpad(?:ding)?[ _-]*(?:token[ _-]*)?(?:id|idx|index|symbol|value)?[ _]*(?:id|idx)?[`*]*"
        r"\s*(?:is|=|:|are|\()\s*[`*]*(\d+)",
        r"\bpadded[^.;]{0,20}? with (?:id )?(\d+)",
    )
    for pattern in patterns:
        if match := re.search(pattern, text, re.I):
            return int(match.group(1))
    return None


_KINDS: tuple[tuple[InputKind, str], ...] = (
    (
        InputKind.IDS,
        r"\b(?:\w+[ _])?(?:ids?|indices)\b|LongTensor|IntTensor|\bint(?:32|64)?\b|\blong\b|\bintegers?\b",
    ),
    (InputKind.PIXELS, r"\bimages?\b|\bpixels?\b|\bpictures?\b|\bphotos?\b"),
    (InputKind.AUDIO, r"\bwave(?:form)?s?\b|\braw (?:audio|speech|samples)\b|\baudio samples\b"),
    (
        InputKind.FEATURES,
        r"\bfloats?\w*\b|\bfeatures?\b|\bembedd(?:ed|ings?)\b|\bvectors?\b|FloatTensor|\bframes?\b|\bmel\b|\bspectro\w+",
    ),
)


def kind_in(text: str) -> InputKind | None:
    """The kind of input that a definition names first."""
    hits = [(match.start(), kind) for kind, pattern in _KINDS if (match := re.search(pattern, text[:160], re.I))]
    return min(hits)[1] if hits else None
