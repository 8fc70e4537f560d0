"""The output has fewer positions in eval than in training.

What it looks at
    A batch in which every sample is padded, in train mode and in eval: the number of output positions must be the same.

Why it matters
    What stands behind (token losses, heads, masks of the input's length) meets another length in use than in training.

What you see
    Shape errors in validation only; or none, and results shifted against their masks.

How to fix it
    Pad the result back, or do not cut; for torch's fast path::

        nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)

When it does not apply
    No padding, or a pooled output. Torch's own nested-tensor path trims by design: a note.

Where it points
    The line that cuts, or the call of torch's encoder.

References
    pytorch issue 97111.
"""

from __future__ import annotations

from encdoctor.evidence.edges import TrimmedOutput
from encdoctor.intent import Intent
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("SHP005", "output-shape-changed", Severity.WARNING)
SAME = Limit(0, "positions fewer in eval than in train", "the same batch gives the same shape in both modes")


def check(trimmed: TrimmedOutput, intent: Intent) -> Verdict:
    if not trimmed.measured:
        return NotApplicable(trimmed.why)
    if trimmed.eval >= trimmed.train:
        return Passed()
    note = trimmed.inside_torch or intent.installed
    return Suspect(
        RULE,
        message=f"{trimmed.length} positions give {trimmed.train} outputs in training and {trimmed.eval} in eval",
        cause="torch's nested-tensor path drops columns that are padding in every sample"
        if trimmed.inside_torch
        else "positions that are padding in every sample are cut off in eval and not put back",
        measured=float(trimmed.train - trimmed.eval),
        limit=SAME,
        where=trimmed.at,
        fix="enable_nested_tensor=False" if trimmed.inside_torch else "pad the output back to the input's length",
        trials=(Trial("no_nested_tensor", trimmed.encoders),) if trimmed.inside_torch else (),
        severity=Severity.NOTE if note else None,
    )
