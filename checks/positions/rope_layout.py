"""Rotary positions that do not make scores depend on the distance.

What it looks at
    A sentence of one token repeated. Turned by their positions, queries and keys must give products that depend on the
    distance alone: all diagonals of q·kᵀ are constant. Whether q, k and v vary at all tells which are turned.

Why it matters
    The relative property is what rotary positions are for. With pairs and halves mixed up, the "rotation" stretches;
    with only one of q and k turned, scores depend on where in the text a word stands.

What you see
    Nothing crashes; the model trains, worse, and does not carry over to longer texts or to published weights.

How to fix it
    Turn q and k, and lay the angles out as the rotation pairs the features::

        angles = torch.cat([angles, angles], -1)              # halves: with chunk(2, -1)
        angles = angles.repeat_interleave(2, -1)              # pairs: with x[..., 0::2], x[..., 1::2]
        q, k = turn(q), turn(k)                               # both, and not v

When it does not apply
    No position enters between the projections and the product; rotations over part of the features, and decays that
    depend on the distance (xPos), are sound.

Where it points
    Where features are turned, and where they are multiplied by the angles.

References
    Su et al. 2021, RoFormer.
"""

from __future__ import annotations

from encdoctor.evidence.rotary import Rotary
from encdoctor.intent import Intent
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("POS007", "rope-layout", Severity.ERROR)
DISTANCE_ALONE = Limit(
    1e-4,
    "relative difference of q·k between equal distances",
    "rotations by i and j leave i − j; tables in float32 are off by 1e-6 here, a wrong layout by more than 0.01",
)
TURNED_VALUES = Limit(
    1e-4, "relative change of values with the position", "values carry content; only scores use positions"
)


def check(rotary: Rotary, intent: Intent) -> Verdict:
    if not rotary.found:
        return NotApplicable(rotary.why)
    wrong = rotary.deviation > DISTANCE_ALONE.value
    if not wrong and not rotary.values:
        return Passed(rotary.deviation)
    message, fix = _says(rotary) if wrong else ("values are turned by their positions too", "turn q and k only")
    one_sided = rotary.queries != rotary.keys
    places = (rotary.scores_at, rotary.turned_at, rotary.multiplied_at)
    order = places if one_sided else (*places[1:], places[0]) if wrong else places[2:]
    severity = None if wrong else Severity.WARNING
    return Suspect(
        RULE,
        message=message,
        cause=f"for one token repeated, q·k at equal distances differs by {rotary.deviation:.2g}, relative"
        if wrong
        else f"for one token repeated, values change by {rotary.values_change:.2g}, relative",
        measured=rotary.deviation if wrong else rotary.values_change,
        limit=DISTANCE_ALONE if wrong else TURNED_VALUES,
        where=tuple(place for group in order for place in group),
        fix=fix,
        severity=Severity.NOTE if intent.installed and not wrong else severity,
    )


def _says(rotary: Rotary) -> tuple[str, str]:
    if rotary.queries != rotary.keys:
        one = "queries" if rotary.queries else "keys"
        return f"only the {one} are turned by their positions", "turn both q and k"
    if rotary.tables and rotary.turns and rotary.tables != rotary.turns:
        return (
            f"angles are laid out in {rotary.tables}, features are turned in {rotary.turns}",
            f"lay the angles out in {rotary.turns}, or turn features in {rotary.tables}",
        )
    if rotary.stretch > DISTANCE_ALONE.value:
        return f"the rotation stretches vectors by up to {rotary.stretch:.2g}", "pair each feature with its own angle"
    return "q and k are turned by different angles", "use the same angles, of the same sign, for q and k"
