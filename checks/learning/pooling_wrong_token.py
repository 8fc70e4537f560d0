"""The sentence vector is read from a padded position.

What it looks at
    Operations that take one position of each sample on the way to an output, and which position that is where padding
    stands on the left, and on the right.

Why it matters
    The state at a padded position is no summary of anything: it was computed from padding, and no loss ever shaped it.

What you see
    Vectors of short sentences that are all alike; results that change when the tokenizer pads on the other side.

How to fix it
    Find the last real token, wherever padding stands::

        last = torch.where(keep, torch.arange(S), -1).argmax(1)      # not keep.sum(1) - 1
        x[torch.arange(B), last]

    For a [CLS] token under left padding, take the first real position: `keep.int().argmax(1)`.

When it does not apply
    Nothing is told about padding. Where nothing says that padding may stand on the left, counting tokens is a note, and
    taking the first position is fine. Padding on the right that is read is for pooling-includes-padding.

Where it points
    The line that takes the position.

References
    Hugging Face, Padding and truncation: `padding_side`.
"""

from __future__ import annotations

from encdoctor.evidence.pooling import Picked, TokenPooling
from encdoctor.intent import Intent, What
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("FIT011", "pooling-wrong-token", Severity.WARNING)
NONE = Limit(0, "samples read at a padded position", "the state of padding says nothing about the sentence")


def check(pooling: TokenPooling, intent: Intent) -> Verdict:
    if pooling.why:
        return NotApplicable(pooling.why)
    declared = intent.says(What.LEFT_PADDING)
    wrong = [p for p in pooling.picks if not p.left_real and p.right_real and (declared or p.counted)]
    if not wrong:
        return Passed()
    return [_suspect(pick, declared, intent) for pick in wrong]


def _suspect(pick: Picked, declared: bool, intent: Intent) -> Suspect:
    at = ", ".join(map(str, pick.left or ()))
    source = intent.of(What.LEFT_PADDING)
    said = f"; padding may stand there: {source.source}" if declared and source else ""
    return Suspect(
        RULE,
        message=f"with padding on the left the sentence vector is read from padding (positions {at})",
        cause=("the number of tokens, less one, is the last position behind padding on the right only" if pick.counted
               else "the first position is padding then") + said,
        measured=float(len(pick.left or ())),
        limit=NONE,
        where=(pick.place,),
        fix="find the last real position: torch.where(keep, torch.arange(S), -1).argmax(1)"
        if pick.counted
        else "find the first real position: keep.int().argmax(1)",
        trials=(Trial("take_real", (pick.key,), 1.0 if pick.counted else 0.0),),
        severity=None if declared else Severity.NOTE,
        about=pick.key,
    )
