"""A table of sines and cosines that is not what it was meant to be.

What it looks at
    The fixed table that is added for positions, as waves: whether every moving column has a partner a quarter turn
    away,
    whether columns are zero or equal to others, and whether neighbouring positions are alike. What it resembles among
    known slips is named.

Why it matters
    With a sine and a cosine of each rate, a shift is a rotation and attention can learn "three words back". With one of
    them missing, unequal rates, or rates of thousands of radians a step, positions are noise.

What you see
    Nothing crashes. Order is learned late or never; longer inputs than in training fail.

How to fix it
    One rate for each pair, falling from 1 to 1/10000::

        rates = 1e4 ** (torch.arange(0, d, 2) / d)     # before: they grow
        rates = 1e4 ** (-torch.arange(0, d, 2) / d)    # after
        table[:, 0::2] = torch.sin(at[:, None] * rates)
        table[:, 1::2] = torch.cos(at[:, None] * rates)

When it does not apply
    Learned positions, tables that are no waves; other bases, layouts (pairs or halves), orders and scales are sound.

Where it points
    The line with the rates, or with the sine and cosine.

References
    Vaswani et al. 2017, section 3.5.
"""

from __future__ import annotations

from encdoctor.evidence.positions import PositionPart
from encdoctor.evidence.sinusoids import Waves, read
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("POS003", "sinusoid-wrong", Severity.WARNING)
SHARE = Limit(
    0.3,
    "share of columns that are zero, repeated or without a partner a quarter turn away",
    "a sound table has none but the last column of an odd width",
)
ALIKE = Limit(
    0.5,
    "mean cosine between neighbouring rows",
    "rates from 1 to 1/10000 give 0.88 at width 8 and 0.95 at 64; angles of many turns a step give about 0",
)


def check(part: PositionPart) -> Verdict:
    if not part.found:
        return NotApplicable(part.why)
    if part.values is None:
        return NotApplicable("the positions are learned")
    waves = read(part.values)
    if not waves.meant:
        return NotApplicable("what is added for positions is not made of sines and cosines")
    share, says = _worst(waves)
    scrambled = waves.alike < ALIKE.value
    if share <= SHARE.value and not scrambled and not waves.resembles:
        return Passed(share)
    of_rates = scrambled or "rate" in waves.resembles or "exponent" in waves.resembles
    # sines of many rates, without cosines, still tell positions apart: unusual, not wrong
    unusual = not scrambled and not waves.resembles and max(waves.dead, waves.repeated) <= SHARE.value
    symptom = says if share > SHARE.value else "neighbouring positions are as different as distant ones"
    lines = (*part.rates, *part.waves) if of_rates else (*part.waves, *part.rates)
    return Suspect(
        RULE,
        message=f"the sinusoidal position table is wrong: {waves.resembles or symptom}",
        cause=f"{says}; neighbouring rows have a cosine of {waves.alike:.2f}",
        measured=waves.alike if scrambled else share,
        limit=ALIKE if scrambled else SHARE,
        where=(*lines, *part.made, part.added),
        fix="sine and cosine of position · 10000^(−2i/d), the same rate for both of a pair",
        trials=(Trial("sinusoid_table", (part.name,)),) if part.name and part.rows else (),
        severity=Severity.NOTE if unusual else None,
    )


def _worst(waves: Waves) -> tuple[float, str]:
    return max(
        (waves.dead, f"{waves.dead:.0%} of the columns are zero"),
        (waves.repeated, f"{waves.repeated:.0%} of the moving columns equal another"),
        (waves.unpaired, f"{waves.unpaired:.0%} of the moving columns have no partner a quarter turn away"),
    )
