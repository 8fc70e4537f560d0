"""Forward changes the caller's tensors.

What it looks at
    The input and the mask before and after a call, and which recorded operation writes into their memory.

Why it matters
    The caller's batch is another one afterwards: a second pass, a loss on the input, gradient accumulation or an
    ensemble reads what this model left.

What you see
    The first call is right, the second on the same batch is not; "a leaf Variable that requires grad is being used in
    an in-place operation".

How to fix it
    Write into a new tensor::

        x.masked_fill_(pad[:, :, None], 0.0)            # before
        x = x.masked_fill(pad[:, :, None], 0.0)         # after

When it does not apply
    The input is copied first; the operation returns a new tensor.

Where it points
    The first operation that writes into what was passed in.

References
    PyTorch, In-place operations (Autograd mechanics).
"""

from __future__ import annotations

from encdoctor.evidence.modes import Mutation, Repeats
from encdoctor.model import Limit, Passed, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("MOD005", "input-mutated", Severity.ERROR)
UNTOUCHED = Limit(0.0, "largest change of the caller's tensors", "what is passed in is the caller's, bit for bit")


def check(repeats: Repeats) -> Verdict:
    return [_suspect(mutation) for mutation in repeats.mutated] or Passed()


def _suspect(mutation: Mutation) -> Suspect:
    return Suspect(
        RULE,
        message=f"`{mutation.argument}` is another tensor after the call",
        cause=f"an in-place operation writes into `{mutation.argument}`, which belongs to the caller",
        measured=mutation.change,
        limit=UNTOUCHED,
        where=(mutation.place,),
        fix="use the operation that returns a new tensor (without the underscore), or clone the input first",
        trials=(Trial("clone_inputs"),),
        about=mutation.argument,
    )
