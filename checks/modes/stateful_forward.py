"""A call changes what the next call returns.

What it looks at
    A call, another one with a different batch and length, and the first one again, on one copy in eval mode. Attributes
    and buffers that changed meanwhile are listed; containers that grow with every call too.

Why it matters
    Results depend on what the model saw before: a mask built for another batch is reused, a counter shifts positions, a
    list of attention maps fills the memory.

What you see
    Tests pass alone and fail together; errors about shapes from the second batch on; memory that grows with every step.

How to fix it
    Compute from the arguments, or key the cache by all that it depends on::

        if self.mask is None:                                # before
            self.mask = make_mask(lengths)
        mask = make_mask(lengths)                            # after

When it does not apply
    Caches that are rebuilt or sliced to fit; state that is documented (streaming, memory, recurrence).

Where it points
    The line outside the constructor that sets the attribute.

References
    PyTorch, Modules (state is in parameters and buffers).
"""

from __future__ import annotations

from encdoctor.evidence.modes import Kept, Repeats
from encdoctor.model import Limit, NotApplicable, Passed, Place, Rule, Severity, Suspect, Trial, Verdict

RULE = Rule("MOD007", "stateful-forward", Severity.ERROR)
SAME = Limit(
    1e-6,
    "relative change of a repeated call after another call",
    "the same kernels on the same numbers give the same bits; 1e-6 leaves room for threads that add in another order",
)
NO_GROWTH = Limit(0.0, "containers that grow with every call", "what grows with every call fills the memory")


def check(repeats: Repeats) -> Verdict:
    if repeats.state > SAME.value or repeats.after_other is not None:
        if repeats.deliberate:
            return NotApplicable(f"state between calls is declared: {repeats.deliberate}")
        return _stateful(repeats)
    growing = [kept for kept in repeats.kept if kept.grows]
    return _growing(growing) if growing else Passed(repeats.state)


def _stateful(repeats: Repeats) -> Suspect:
    raised = repeats.after_other
    names = ", ".join(f"{kept.owner}.{kept.attribute}".lstrip(".") for kept in repeats.kept[:3])
    return Suspect(
        RULE,
        message=f"after a call of another shape the same call {_what(repeats)}",
        cause=f"forward keeps {names or 'something'} for the next call",
        measured=1.0 if raised else repeats.state,
        limit=SAME,
        where=_places(repeats.kept) or (raised.places if raised else ()) or (repeats.root,),
        fix="compute it from the arguments in every call, or key the cache by all that it depends on",
        trials=(Trial("forget"),),
    )


def _what(repeats: Repeats) -> str:
    if repeats.after_other is not None:
        return f"raises {repeats.after_other.text}"
    return f"gives another result, by {repeats.state:.2g}"


def _growing(growing: list[Kept]) -> Suspect:
    return Suspect(
        RULE,
        message=f"{growing[0].attribute} grows with every call",
        cause="forward appends to a container that is never emptied",
        measured=float(len(growing)),
        limit=NO_GROWTH,
        where=_places(tuple(growing)),
        fix="return it instead, or empty it at the start of forward",
        severity=Severity.WARNING,
    )


def _places(kept: tuple[Kept, ...]) -> tuple[Place, ...]:
    return tuple(dict.fromkeys(k.place for k in kept))
