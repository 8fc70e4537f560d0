"""Causal and padding mask do not work together: with padding, the triangle is gone.

What it looks at
    Where causal attention is declared: later tokens are replaced in a batch without padding, and among the real tokens
    of a padded sample. Without a padding mask no earlier output moves; with one it does.

Why it matters
    Training batches are padded, so the model learns with the answer in sight, and has to do without it in use.

What you see
    The test of the causal mask passes, as it is made without padding; training goes too well.

How to fix it
    Combine what may be seen with *and*, in one dtype::

        allowed = causal & keep[:, None, None, :]        # not |, and not one mask instead of the other

    `F.scaled_dot_product_attention` takes `attn_mask` or `is_causal`, not both: put the triangle into the mask.

When it does not apply
    Nothing declares the encoder causal, or it has no mask; later tokens are visible without padding, too (causal-leak).

Where it points
    The operation that applies the mask.

References
    PyTorch, `torch.nn.functional.scaled_dot_product_attention`: an error is raised when both are set.
"""

from __future__ import annotations

from encdoctor.evidence.attention import AttentionSites
from encdoctor.evidence.influence import InfluenceMatrix
from encdoctor.intent import Intent, What
from encdoctor.limits import CONSTRUCTION
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("MSK017", "combined-mask-wrong", Severity.ERROR)
NO_FUTURE = Limit(0.0, CONSTRUCTION, "a masked key has weight exactly 0, with padding as without")


def check(matrix: InfluenceMatrix, attention: AttentionSites, intent: Intent) -> Verdict:
    if not intent.says(What.CAUSAL):
        return NotApplicable("nothing declares the encoder causal")
    if intent.says(What.PREFIX):
        return NotApplicable("a prefix that sees itself is declared")
    plain, padded = matrix.future(), matrix.future_padded()
    if plain is None or padded is None:
        return NotApplicable(matrix.why or "there is no mask, or outputs and inputs do not correspond one to one")
    if plain[0] > 0 or padded[0] == 0:
        return Passed(padded[0])
    open_sites = [site for site in attention.sites if site.on_future > 0]
    masks = [(site, mask) for site in open_sites for mask in site.masks]
    return Suspect(
        RULE,
        message="causal without padding, yet with a padding mask tokens see later ones",
        cause="the padding mask takes the place of the causal one, or the two are joined with or on what may be seen",
        measured=padded[0],
        limit=NO_FUTURE,
        where=tuple(dict.fromkeys(place for site, mask in masks for place in reversed(site.made(mask))))
        or tuple(site.scores_place for site in open_sites),
        fix="join both with and on what may be seen: causal & keep[:, None, None, :]",
        trials=(
            Trial("causal_instead", tuple(mask.key for _, mask in masks)),
            Trial("causal_keys", tuple(site.key for site in open_sites)),
        ),
    )
