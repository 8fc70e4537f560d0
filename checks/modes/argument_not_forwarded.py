"""A constructor argument changes nothing, or not what it should.

What it looks at
    The source of the constructors: arguments that are read nowhere, and arguments that a module built inside takes by
    the same name but is not given, so that it falls back to another default.

Why it matters
    The configuration says one thing and the model is another: experiments with that argument all measure one model.

What you see
    Changing the argument changes nothing, or half of what it should: pre-norm layers in a stack that ends as if it were
    post-norm, a dropout rate that stays what it was.

How to fix it
    Hand it on::

        Layer(width, heads)                                        # before
        Layer(width, heads, normalize_before=normalize_before)     # after

When it does not apply
    The inner default equals what the outer one has; the argument is passed under another name to that class or to a
    sibling; arguments of a common interface (device, dtype), and those that are said to be unused.

Where it points
    The call that lacks the argument, or the argument in the signature.

References
    Hunt and Thomas, "The Pragmatic Programmer", on duplicated knowledge.
"""

from __future__ import annotations

from encdoctor.evidence.arguments import Arguments, LostArgument
from encdoctor.evidence.modes import TrainMode
from encdoctor.intent import Intent
from encdoctor.model import Limit, NotApplicable, Passed, Rule, Severity, Suspect, Verdict

RULE = Rule("MOD012", "argument-not-forwarded", Severity.WARNING)
NONE = Limit(0.0, "arguments that are lost", "an argument that is taken is a promise that it acts")


def check(intent: Intent, arguments: Arguments, train: TrainMode | None) -> Verdict:
    if not arguments.classes:
        return NotApplicable("no constructor's source could be read")
    silent = train is not None and not train.draws
    lost = [a for a in arguments.lost if not (silent and "drop" in a.name) and (a.target or not intent.installed)]
    return [_suspect(argument, intent) for argument in lost] or Passed()


def _suspect(argument: LostArgument, intent: Intent) -> Suspect:
    return Suspect(
        RULE,
        message=_message(argument),
        cause="the constructor takes it and hands it to nobody",
        measured=1.0,
        limit=NONE,
        where=(argument.place,),
        fix=_fix(argument),
        severity=Severity.NOTE if intent.installed else None,
        about=f"{argument.class_name}.{argument.name}",
    )


def _message(argument: LostArgument) -> str:
    if argument.target:
        return (
            f"`{argument.name}` is {argument.given} in {argument.class_name}, but {argument.target} is not given it "
            f"and uses its own default {argument.used}"
        )
    return f"`{argument.name}` of {argument.class_name} is read nowhere"


def _fix(argument: LostArgument) -> str:
    if argument.target:
        return f"pass {argument.name}={argument.name} to {argument.target}"
    return f"use `{argument.name}`, or do not take it"
