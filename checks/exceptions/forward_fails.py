"""An ordinary call raises.

What it looks at
    The encoder is called the way its contract says: a padded batch with its mask, and a batch without padding. What
    comes out of the model's own lines is a fault of the model, not of the call.

Why it matters
    The call that fails here is one that a caller will make.

What you see
    An exception in the first forward, or in the first batch that needs padding.

How to fix it
    Read the line that is pointed at and the shapes at the operation that refused. Where the message is one of torch's
    own, `encdoctor explain` knows what usually is behind it.

When it does not apply
    The call runs. Where an installed package refuses every call, the call may be at fault: undecided. An exception
    that another rule names better (a view on a strided tensor, a mask that does not broadcast) is folded under that
    finding.

Where it points
    The innermost line of the target's own source.

References
    PyTorch's own error texts.
"""

from __future__ import annotations

from encdoctor.contract import CallContract
from encdoctor.evidence.runs import ForwardRuns, Raised, Tried
from encdoctor.intent import Intent
from encdoctor.limits import EVERY_CALL_RUNS
from encdoctor.model import Passed, Rule, Severity, Suspect, Undecided, Verdict

RULE = Rule("XCP001", "forward-fails", Severity.ERROR)


def check(runs: ForwardRuns, contract: CallContract, intent: Intent) -> Verdict:
    failed = [tried for tried in runs.tried if tried.name in ("padded", "plain", "masked") and tried.raised]
    if not failed:
        return Passed()
    raised = failed[0].raised
    assert raised is not None
    if intent.installed and all(tried.raised for tried in runs.tried):
        return Undecided(f"no call that was built goes through: {raised.text}", "--input and --mask-arg")
    if intent.installed and contract.mask is not None and not contract.mask.certain:
        argument = contract.mask.argument
        return Undecided(f"it raises with `{argument}`, which may be no mask: {raised.text}", "--mask-arg NAME")
    return Suspect(
        RULE,
        message=f"{raised.situation}: {raised.text}",
        cause=_cause(failed, raised),
        measured=float(len(failed)),
        limit=EVERY_CALL_RUNS,
        where=raised.places,
        fix="mend the line that raises; `encdoctor explain` knows many of torch's texts",
        severity=None if len(failed) == len(runs.tried) or failed[0].name == "padded" else Severity.WARNING,
    )


def _cause(failed: list[Tried], raised: Raised) -> str:
    calls = ", ".join(tried.name for tried in failed)
    if not raised.operation:
        return f"raised by the calls: {calls}"
    shapes = " and ".join(str(tuple(shape)) for shape in raised.shapes) or "no tensors"
    return f"{raised.operation} refused {shapes}; calls that raise: {calls}"
