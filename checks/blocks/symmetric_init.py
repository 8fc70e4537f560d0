"""Units of a map start with equal weights: they learn the same.

What it looks at
    The rows of each map's weights, one for each output unit. Rows of zeros are left out.

Why it matters
    Units with equal weights give equal results and, as long as what reads them is equal too, get equal gradients: the
    map has as many features as it has different rows.

What you see
    A width that can be cut without any loss; hidden units that move together.

How to fix it
    Draw the weights instead of filling them with one number::

        nn.init.constant_(linear.weight, 0.02)              # before
        nn.init.normal_(linear.weight, std=0.02)            # after

When it does not apply
    Zero weights (last maps of a branch), norms, shifts, fixed filters of a stem.

Where it points
    The line that fills the weights, then the maps.

References
    Goodfellow et al. 2016, Deep Learning, section 8.4: initial parameters need to break symmetry.
"""

from __future__ import annotations

from encdoctor.evidence.initialisation import Initialisation
from encdoctor.intent import Intent
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("BLK025", "symmetric-init", Severity.WARNING)
LIMIT = Limit(
    0.5,
    "share of a map's units that start equal to another unit",
    "independent draws are equal with probability zero; half of the units leave room for blocks that are tied",
)


def check(initialisation: Initialisation, intent: Intent) -> Verdict:
    maps = [m for m in initialisation.maps if m.in_body and m.units > 1]
    if not maps:
        return NotApplicable("no maps of sublayers were recognised")
    equal = [m for m in maps if m.equal_units / m.units > LIMIT.value]
    if not equal:
        return Passed(max(m.equal_units / m.units for m in maps))
    return Suspect(
        RULE,
        message=f"the units of {equal[0].name} start with equal weights",
        cause=f"in {len(equal)} of {len(maps)} maps of the sublayers the weights are filled instead of drawn",
        measured=max(m.equal_units / m.units for m in equal),
        limit=LIMIT,
        where=tuple(dict.fromkeys((*initialisation.drawn_at, *(m.place for m in equal)))),
        fix="draw the weights at random",
        trials=(Trial("redraw", tuple(m.name for m in equal)),),
        severity=Severity.NOTE if intent.installed else None,
    )
