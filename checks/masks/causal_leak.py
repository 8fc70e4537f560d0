"""A causal encoder sees the future.

What it looks at
    Where causal attention is declared, each token in turn is replaced: no output before it may move. The masks at the
    attention sites are compared with the triangle: shifted by one, transposed, or missing.

Why it matters
    The model reads the answer in training and has to do without it in use.

What you see
    Too good in training, useless in generation or streaming.

How to fix it
    Hide strictly later keys, with the diagonal visible::

        later = torch.ones(S, S, dtype=torch.bool).triu(1)      # not triu(2), not tril
        scores = scores.masked_fill(later, minimum)

When it does not apply
    Nothing declares the encoder causal, or a prefix that sees itself is declared.

Where it points
    The operation that hides later keys, or the scores where none does.

References
    Vaswani et al. 2017, section 3.2.3.
"""

from __future__ import annotations

from encdoctor.evidence.attention import AttentionSites, Covers, MaskAt, Site
from encdoctor.evidence.influence import InfluenceMatrix
from encdoctor.intent import Intent, What
from encdoctor.limits import CONSTRUCTION
from encdoctor.model import Limit, NotApplicable, Passed, Place, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("MSK015", "causal-leak", Severity.ERROR)
NO_FUTURE = Limit(0.0, CONSTRUCTION, "a masked key has weight exactly 0, so nothing of it arrives")


def check(matrix: InfluenceMatrix, attention: AttentionSites, intent: Intent) -> Verdict:
    if not intent.says(What.CAUSAL):
        return NotApplicable("nothing declares the encoder causal")
    if intent.says(What.PREFIX):
        return NotApplicable("a prefix that sees itself is declared")
    future = matrix.future()
    if future is None:
        return NotApplicable(matrix.why or "outputs and inputs do not correspond one to one")
    later, _ = future
    if later == 0:
        return Passed(later)
    wrong = [(site, _triangle(site)) for site in attention.sites if site.on_future > 0]
    declared = intent.of(What.CAUSAL)
    return Suspect(
        RULE,
        message="declared causal, yet outputs see later tokens" + _how(wrong),
        cause=f"declared: {declared.source}" if declared else "",
        measured=later,
        limit=NO_FUTURE,
        where=tuple(_place(site, mask) for site, mask in wrong),
        fix="hide strictly later keys: torch.ones(S, S, dtype=torch.bool).triu(1)",
        trials=(
            Trial("causal_instead", tuple(mask.key for _, mask in wrong if mask is not None)),
            Trial("causal_keys", tuple(site.key for site, _ in wrong)),
        ),
    )


def _triangle(site: Site) -> MaskAt | None:
    return next((m for m in site.masks if m.covers in (Covers.FUTURE, Covers.PAST)), None)


def _place(site: Site, mask: MaskAt | None) -> Place:
    if mask is None:
        return site.scores_place
    return site.place if site.foreign else mask.place


def _how(wrong: list[tuple[Site, MaskAt | None]]) -> str:
    masks = [mask for _, mask in wrong if mask is not None]
    if any(mask.covers is Covers.OTHER for site, _ in wrong for mask in site.masks):
        return ""
    if not masks:
        return ": nothing hides them"
    if masks[0].covers is Covers.PAST:
        return ": the triangle is transposed"
    return f": the triangle is shifted by {masks[0].offset - 1}"
