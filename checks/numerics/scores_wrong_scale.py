"""Attention scores are scaled by something other than 1/√head_dim.

What it looks at
    The product of all plain numbers between the query and key projections and the softmax, confirmed by the recorded
    tensors, against 1/√head_dim.

Why it matters
    Too small a scale makes attention nearly uniform, an average of all tokens; too large a one makes it one-hot and
    stops the gradient of queries and keys.

What you see
    Attention maps that are flat, or one-hot, from the first step; slow learning that a higher learning rate does not
    mend.

How to fix it
    Scale once, by the width of a head; `F.scaled_dot_product_attention` already does::

        scores = q @ k.transpose(-2, -1) / math.sqrt(d_model)         # before
        scores = q @ k.transpose(-2, -1) / math.sqrt(head_dim)        # after

When it does not apply
    Within a factor of two; learned temperatures, QK-norm and cosine attention; a scale that depends on the length; a
    declared 1/head_dim (µP) is a note.

Where it points
    The line that scales, or the one that makes the scores.

References
    Vaswani et al. 2017, section 3.2.1; Yang et al. 2022 (µP).
"""

from __future__ import annotations

from math import isclose, sqrt

from encdoctor.evidence.scores import Scores, ScoreSite
from encdoctor.intent import Intent
from encdoctor.model import Limit, NotApplicable, Passed, Place, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("NUM005", "scores-wrong-scale", Severity.WARNING)
FACTOR_OFF = Limit(
    2.0,
    "factor between the scale and 1/√head_dim",
    "published encoders stay within it (DeBERTa divides by √(3·head_dim)); beyond it softmax starts flat or saturated",
)
EXACT = 1e-3


def check(intent: Intent, scores: Scores) -> Verdict:
    if not scores.sites:
        return NotApplicable("no softmax over q·k was recognised")
    wrong = [site for site in scores.sites if _is_wrong(site)]
    if not wrong:
        return Passed(max((_off(s) for s in scores.sites if s.scale), default=1.0))
    worst = max(wrong, key=_off)
    return Suspect(
        RULE,
        message=f"scores are scaled by {worst.scale:.3g} instead of 1/√{worst.head_dim} = {worst.head_dim**-0.5:.3g}",
        cause=f"{_reading(worst)}: attention starts {'flat' if worst.predicted < 1 else 'saturated'}",
        measured=_off(worst),
        limit=FACTOR_OFF,
        where=tuple(dict.fromkeys(place for site in wrong for place in _places(site))),
        fix="scale the scores once, by 1/sqrt(head_dim)",
        trials=(Trial("scale", tuple(site.key for site in wrong), 1 / worst.predicted),),
        severity=_severity(worst, scores, intent),
    )


def _is_wrong(site: ScoreSite) -> bool:
    if not site.plain or not site.scaled or not site.scale:
        return False
    return _off(site) >= FACTOR_OFF.value * (1 - EXACT) or _is_model_width(site)


def _is_model_width(site: ScoreSite) -> bool:
    """Exactly 1/√d_model with two or more heads: the width of all heads was taken for that of one."""
    return site.heads > 1 and isclose(site.predicted * sqrt(site.heads), 1.0, rel_tol=EXACT)


def _off(site: ScoreSite) -> float:
    return max(site.predicted, 1 / site.predicted) if site.predicted else 1.0


def _reading(site: ScoreSite) -> str:
    """Which slip gives this number; where two give the same, the count of operations tells."""
    width, scale = site.head_dim, abs(site.scale or 0.0)
    twice = len([s for s in site.scalings if not s.by_torch]) + any(s.by_torch for s in site.scalings) > 1
    readings = (
        (1 / width, "1/√head_dim is applied twice" if twice else "it divides by head_dim, not by its root"),
        (sqrt(width), "it multiplies by √head_dim instead of dividing"),
        ((width * site.heads) ** -0.5, "it divides by the root of the model's width, not of a head's"),
        (1 / (width * site.heads), "it divides by the model's width"),
        (site.heads**-0.5, "it divides by the root of the number of heads"),
        (float(width), "it multiplies by head_dim"),
        (1.0, "the factors cancel each other"),
    )
    for value, text in readings:
        if isclose(scale, value, rel_tol=EXACT):
            return text
    return f"the factors multiply to {scale:.3g}"


def _places(site: ScoreSite) -> list[Place]:
    own = [s.place for s in reversed(site.scalings) if not s.by_torch]
    return [*own, site.scores_place]


def _severity(site: ScoreSite, scores: Scores, intent: Intent) -> Severity | None:
    mup = scores.declared and isclose(abs(site.scale or 0.0) * site.head_dim, 1.0, rel_tol=EXACT)
    mild = intent.installed and _off(site) < FACTOR_OFF.value
    return Severity.NOTE if mup or mild else None
