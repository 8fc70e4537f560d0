"""Weights are drawn so large that every map blows its input up.

What it looks at
    For each linear map of the sublayers: the standard deviation of its weights times the root of its fan-in, which is
    the factor by which it enlarges an input of unit size. Sound schemes keep it near one.

Why it matters
    A feed-forward enlarges by the square of the factor, attention scores grow by it too: softmax starts as a hard
    choice of one key, through which hardly any gradient comes, and the loss starts far too high.

What you see
    A loss far above ln C at the first step, attention that is one-hot before training, gradients that explode or are
    nearly zero in queries and keys.

How to fix it
    Draw with a spread that shrinks with the width::

        nn.init.normal_(linear.weight, std=1.0)      # before
        nn.init.normal_(linear.weight, std=0.02)     # after, or nn.init.xavier_uniform_(linear.weight)

When it does not apply
    Small weights, zero weights of last maps, and trained weights, whose maps stay below the limit.

Where it points
    The line that draws the weights, then the maps.

References
    Glorot and Bengio 2010; He et al. 2015; Devlin et al. 2019 (0.02).
"""

from __future__ import annotations

from encdoctor.evidence.initialisation import Initialisation
from encdoctor.intent import Intent
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("BLK014", "init-scale", Severity.WARNING)
LIMIT = Limit(
    3.2,
    "factor by which the median map of the sublayers enlarges an input of unit size",
    "two maps in a row then enlarge by more than 10; Glorot gives at most 1.4, He 1.4, torch's default 0.58, BERT's "
    "0.02 at width 768 gives 0.55",
)


def check(initialisation: Initialisation, intent: Intent) -> Verdict:
    maps = [m for m in initialisation.maps if m.in_body and m.fan_in > 1]
    if not maps:
        return NotApplicable("no maps of sublayers were recognised")
    gains = sorted(m.gain for m in maps)
    median = gains[len(gains) // 2]
    if median <= LIMIT.value:
        return Passed(median)
    large = [m for m in maps if m.gain > LIMIT.value]
    worst = max(large, key=lambda m: m.gain)
    return Suspect(
        RULE,
        message="the weights are drawn far too large",
        cause=f"{len(large)} of {len(maps)} maps enlarge by over {LIMIT.value:g}, {worst.name} by {worst.gain:.2g}",
        measured=median,
        limit=LIMIT,
        where=tuple(dict.fromkeys((*initialisation.drawn_at, *(m.place for m in large)))),
        fix="draw weights with standard deviation 0.02, or with Xavier's scheme",
        trials=(Trial("rescale_weights", tuple(m.name for m in large)),),
        severity=Severity.NOTE if intent.installed else None,
    )
