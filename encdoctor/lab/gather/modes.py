"""Calls the model again, with other seeds, after another shape, and in train mode."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from encdoctor.evidence.modes import Draw, DropoutModule, Kept, Mutation, Repeats, ThinnedScores, TrainMode
from encdoctor.lab.batches import Call, make_call
from encdoctor.lab.gather.attention import sites_with_nodes
from encdoctor.lab.gather.influence import real_outputs, relative_change
from encdoctor.lab.lab import Lab, NotMeasured, Ran, Treatment
from encdoctor.lab.repair.chance import drawn_by, draws_in, watch_caller, without_chance
from encdoctor.lab.sites import base_name, score_paths
from encdoctor.lab.situations import Situation
from encdoctor.lab.source import attribute_line, class_place
from encdoctor.lab.state import (
    Fingerprints,
    fingerprints,
    lines_that_read_training,
    lines_that_set_globals,
    random_states,
    set_in_forward,
    size_of,
    switches,
    usual_switches,
)
from encdoctor.lab.trace import CONTENT, MASK, Trace
from encdoctor.model import Place
from encdoctor.signatures import as_mapping, config_objects

# Below this two runs of the same kernels differ by rounding, if at all.
SAME = 1e-6
DELIBERATE = re.compile(
    r"monte[- ]carlo|\bmc dropout|\bvariational\b|\bdraws? (?:a )?samples?\b"
    r"|\bsampled? (?:at|in|on) (?:every|each|infer|eval)|\bstochastic (?:at|in) (?:infer|eval)"
    r"|\bstateful\b|\bstreaming\b|\bmemory (?:of|from) (?:the )?(?:last|previous|earlier)|\brecurren",
    re.IGNORECASE,
)
ASKS_FOR_CHANCE = {"noise", "generator", "rng", "seed", "sample", "n_samples", "num_samples", "temperature"}


def gather_repeats(lab: Lab) -> Repeats:
    """Four forwards of one copy: as usual, another shape, as usual, another seed."""
    situation = replace(lab.padded, dtype=lab.own_dtype)
    model = lab.fresh()
    usual_switches()
    at_start, before = fingerprints(model), switches()
    first, states = _call(lab, model, situation, 0)
    if first.output is None:
        raise NotMeasured(first.raised.summary if first.raised else "forward returned no tensor")
    after, left = switches(), fingerprints(model)
    _call(lab, model, _another(lab, situation), 0)
    again, _ = _call(lab, model, situation, 0)
    grown = fingerprints(model)
    seeded, others = _call(lab, model, situation, 1)
    chance = _change(lab, again, seeded, situation)
    state = _change(lab, first, again, situation)
    draws = _decided_at(lab, situation) if chance > SAME else ()
    changed = tuple(name for name in before if before[name] != after[name])
    reseeds = tuple(name for name in states if states[name] == others[name])
    return Repeats(
        chance=chance,
        state=state,
        after_other=again.raised,
        draws=draws,
        mutated=tuple(_mutated(lab, situation, first.call)),
        kept=tuple(_kept(lab, model, at_start, left, grown, fingerprints(model))),
        switches=changed,
        reseeds=reseeds,
        root=class_place(lab.origin, model),
        deliberate=_deliberate(lab),
        sets=next(lines_that_set_globals(lab.origin, model), None) if changed or reseeds else None,
    )


def _decided_at(lab: Lab, situation: Situation) -> tuple[Draw, ...]:
    """The draws of a recorded run, each on the line that lets it happen."""
    draws = tuple(draws_in(lab.trace(situation)))
    seen: dict[str, Place] = {}
    watching = {draw.key: watch_caller(lab.origin, draw, seen) for draw in draws}
    lab.under(Treatment(edits=watching)).run(situation)
    return tuple(replace(draw, place=seen.get(draw.key, draw.place)) for draw in draws)


def _call(lab: Lab, model: nn.Module, situation: Situation, seed: int) -> tuple[Ran, dict[str, object]]:
    """One forward under a seed of its own, on the situation's contents, and where it leaves the generators."""
    call = make_call(lab.contract, situation, lab.device)
    # not under no_grad, whose end would hide that forward switched gradients off; the lab restores the switch
    torch.set_grad_enabled(True)
    ran = lab.forward(model, replace(situation, seed=situation.seed + seed), call)
    return ran, random_states()


def _another(lab: Lab, situation: Situation) -> Situation:
    """Two samples of about half the length, where the length can vary."""
    if not lab.contract.has_sequence or lab.contract.settings.get("length"):
        return replace(situation, lengths=situation.lengths[:2], seed=5)
    length = max(2, situation.length // 2)
    return replace(situation, length=length, lengths=(length, max(1, length - 2)), seed=5)


def _change(lab: Lab, one: Ran, other: Ran, situation: Situation) -> float:
    if one.output is None or other.output is None or one.output.shape != other.output.shape:
        return 0.0
    return relative_change(one.output.detach(), other.output.detach(), real_outputs(lab, one.output, situation))


# ---- what a call leaves behind ---------------------------------------------------------------------------------


def _mutated(lab: Lab, situation: Situation, used: Call) -> Iterator[Mutation]:
    clean = make_call(lab.contract, situation, lab.device)
    for name, before, after in _tensors(lab, clean, used):
        if before.shape == after.shape and not torch.equal(before, after):
            change = float((before.double() - after.double()).abs().max()) if before.dtype is not torch.bool else 1.0
            place = _writer(lab.trace(situation)) or class_place(lab.origin, lab.model)
            yield Mutation(name, change, place)


def _tensors(lab: Lab, clean: Call, used: Call) -> Iterator[tuple[str, Tensor, Tensor]]:
    yield lab.contract.argument, clean.content, used.content
    for name, value in clean.kwargs.items():
        other = used.kwargs.get(name)
        if isinstance(value, Tensor) and isinstance(other, Tensor) and name != lab.contract.argument:
            yield name, value, other


def _writer(trace: Trace) -> Place | None:
    """The first operation that writes into memory that the caller passed in."""
    passed = [r for node in trace.nodes for r in node.refs if r.node < 0 and r.taint & (CONTENT | MASK)]
    leaves = {r.tensor.data_ptr() for r in passed}
    for node in trace.nodes:
        writes = node.op.endswith("_") and not node.op.startswith("_")
        if writes and node.refs and node.refs[0].tensor.data_ptr() in leaves:
            return node.place
    return None


def _kept(lab: Lab, model: nn.Module, start: Fingerprints, *later: Fingerprints) -> Iterator[Kept]:
    for key, value in later[-1].items():
        if start.get(key) == value:
            continue
        sizes = [size_of(prints.get(key)) for prints in later]
        grows = sizes[0] < sizes[1] < sizes[2]
        yield Kept(*key, set_in_forward(lab.origin, model, *key), grows)


def _deliberate(lab: Lab) -> str:
    for name in inspect.signature(lab.model.forward).parameters:
        if name in ASKS_FOR_CHANCE:
            return f"argument {name!r} of forward"
    for cls in dict.fromkeys(type(module) for module in lab.model.modules()):
        doc = None if cls.__module__.startswith("torch.") else cls.__dict__.get("__doc__")
        found = DELIBERATE.search(doc) if doc else None
        if found:
            return f"{found.group()!r} in the docstring of {cls.__name__}"
    return ""


# ---- train mode ------------------------------------------------------------------------------------------------


def gather_train_mode(lab: Lab) -> TrainMode:
    """One recorded forward in train mode, and one with every dropout replaced by its mean, against eval mode."""
    evaluation = replace(lab.padded, dtype=lab.dtype, fast_path=False)
    training = replace(evaluation, training=True)
    trace = lab.trace(training)
    if trace.output is None:
        raise NotMeasured("forward raises in train mode")
    draws = tuple(draws_in(trace))
    model = lab.copy_of(lab.dtype)
    norms = tuple(name for name, m in model.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm))
    difference, why = _difference(lab, evaluation, training, draws, norms)
    return TrainMode(
        draws,
        tuple(_dropouts(lab, model, draws)),
        tuple(_declared_rates(lab)),
        difference,
        why,
        class_place(lab.origin, model),
        tuple(lines_that_read_training(lab.origin, model)) if difference else (),
        tuple(_thinned_scores(lab, training, trace)),
    )


def _thinned_scores(lab: Lab, training: Situation, trace: Trace) -> Iterator[ThinnedScores]:
    leaks = {node.index: site.on_padding for node, site in sites_with_nodes(lab, training)}
    for path in score_paths(trace):
        for node, scores in path.steps:
            masks = [ref for ref in node.refs if ref is not scores and bool((ref.tensor != ref.tensor.amax()).any())]
            drawn = next((key for ref in masks if (key := drawn_by(trace, ref))), "")
            if base_name(node.op) == "mul" and drawn:
                yield ThinnedScores(drawn, node.place, path.softmax.place, leaks.get(path.softmax.index, 0.0))


def _difference(
    lab: Lab, evaluation: Situation, training: Situation, draws: tuple[Draw, ...], norms: tuple[str, ...]
) -> tuple[float | None, str]:
    if lab.get(Repeats).chance > SAME:
        return None, "eval mode depends on chance itself"
    if norms:
        return None, f"batch norm takes statistics of the batch in train mode ({norms[0]})"
    odd = next((draw for draw in draws if draw.operation not in ("bernoulli", "native_dropout")), None)
    if odd is not None:
        return None, f"train mode draws with {odd.operation}, which has no mean to be put in its place"
    plain = lab.run(evaluation)
    calm = lab.under(Treatment(edits={draw.key: without_chance() for draw in draws}))
    first, second = calm.run(training), calm.run(replace(training, fast_path=True))
    if plain.output is None or first.output is None or plain.output.shape != first.output.shape:
        return None, "the two modes give outputs of different shapes"
    if second.output is None or _change(lab, first, second, training) > SAME:
        return None, "train mode depends on more than its dropouts"
    return _change(lab, plain, first, training), ""


def _dropouts(lab: Lab, model: nn.Module, draws: tuple[Draw, ...]) -> Iterator[DropoutModule]:
    active = {draw.module for draw in draws}
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
            owner, _, attribute = name.rpartition(".")
            place = attribute_line(lab.origin, model, owner, attribute) or class_place(lab.origin, model, owner)
            yield DropoutModule(name, float(module.p), name in active, place)


def _declared_rates(lab: Lab) -> Iterator[tuple[str, float]]:
    """Rates above 0 among the constructor's arguments and the configuration."""
    for holder in (lab.model, *config_objects(lab.model)):
        for name, value in as_mapping(holder).items():
            if isinstance(name, str) and _is_rate(name, value):
                yield name, value
    try:
        parameters = inspect.signature(type(lab.model).__init__).parameters
    except (TypeError, ValueError):
        return
    for name, parameter in parameters.items():
        if _is_rate(name, parameter.default) and not hasattr(lab.model, name):
            yield name, parameter.default


def _is_rate(name: str, value: object) -> bool:
    """A dropout rate of the encoder, not of a head that this model may not have."""
    said = "drop" in name.lower() and not re.search("classif|head|pool|summary|layerdrop", name.lower())
    return said and isinstance(value, float) and 0 < value < 1
