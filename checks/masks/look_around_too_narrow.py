"""Local attention sees less than its declared window.

What it looks at
    The band of visible keys at every attention site, against the width that is declared. A window of w is read as w
    keys in all, half of them on either side, the narrower of the two usual readings.

Why it matters
    Fewer neighbours are read than the model was designed, or trained, for.

What you see
    Worse results than the configuration promises; a receptive field that is too small.

How to fix it
    Count the distance on either side::

        near = (places[:, None] - places[None, :]).abs() <= window // 2       # not window // 4, not < window // 2

When it does not apply
    No width is declared, no site has a mask that is a band, or the band is at least as wide as declared.

Where it points
    The operation that hides what is out of the window, and the lines that make that mask.

References
    Beltagy et al. 2020 (Longformer), section 3.1: a window of w is ½w tokens on each side.
"""

from __future__ import annotations

from encdoctor.evidence.attention import AttentionSites, Covers
from encdoctor.intent import Intent, What
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("MSK018", "look-around-too-narrow", Severity.WARNING)


def check(attention: AttentionSites, intent: Intent) -> Verdict:
    declared = intent.of(What.WINDOW)
    if declared is None or isinstance(declared.value, bool | str):
        return NotApplicable("no width of a window is declared")
    bands = [(site, mask) for site in attention.sites for mask in site.masks if mask.covers is Covers.BAND]
    if not bands:
        return NotApplicable("no site has a mask that leaves a band")
    wanted = (declared.value - 1) // 2
    narrow = [(site, mask) for site, mask in bands if mask.offset < wanted]
    if not narrow:
        return Passed(float(min(mask.offset for _, mask in bands)))
    width = min(mask.offset for _, mask in narrow)
    return Suspect(
        RULE,
        message=f"a window of {declared.value} is declared, but {width} keys on each side are visible",
        cause=f"declared: {declared.source}",
        measured=float(width),
        limit=Limit(float(wanted), "visible keys on each side", f"a window of {declared.value} is at least that wide"),
        where=tuple(dict.fromkeys(place for site, mask in narrow for place in reversed(site.made(mask)))),
        fix=f"leave {declared.value // 2} keys on each side visible",
        severity=Severity.NOTE if intent.installed else None,
    )
