"""Looks whether the mask works in every batch, or in the usual one only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import nn

from encdoctor.evidence.influence import PaddingInfluence
from encdoctor.evidence.leaks import Way
from encdoctor.evidence.masks import StaleMask, Variant, Variants
from encdoctor.lab.batches import make_call
from encdoctor.lab.gather.attention import sites_with_nodes
from encdoctor.lab.gather.influence import real_outputs, relative_change, with_other_padding
from encdoctor.lab.gather.leaks import entry_of_content
from encdoctor.lab.lab import Lab, NotMeasured, Ran
from encdoctor.lab.situations import Situation
from encdoctor.lab.state import fingerprints, set_in_forward
from encdoctor.limits import PADDING_MOVES_NOTHING

# Below this, relative, two runs of the same kernels on the same numbers differ by threads adding in another order.
SAME = 1e-6


def gather_variants(lab: Lab) -> Variants:
    """Padding's content is replaced in each kind of batch; only where it moves nothing in the usual one."""
    padding = lab.get(PaddingInfluence)
    if not padding.measured:
        return Variants(False, padding.why)
    if padding.leaks:
        return Variants(False, "padding moves real outputs in the usual batch")
    return Variants(True, "", tuple(_leaking(lab)))


def _leaking(lab: Lab) -> Iterator[Variant]:
    for name, situation in _kinds(lab):
        try:
            change = _change(lab, situation)
        except NotMeasured:
            continue
        if change > (PADDING_MOVES_NOTHING.value if situation.dtype == "float64" else SAME):
            yield from _explained(lab, name, situation, change)


def _kinds(lab: Lab) -> Iterator[tuple[str, Situation]]:
    usual = replace(lab.padded, dtype=lab.own_dtype)
    some = usual.lengths[1]
    yield "a batch of one", replace(usual, lengths=(some,))
    yield "a batch of equal lengths", replace(usual, lengths=(some,) * usual.batch)
    yield "training", replace(usual, training=True, grad=True)
    longest = lab.contract.max_length
    if (
        usual.length >= 8
        and (longest is None or longest >= usual.length + 3)
        and not lab.contract.settings.get("length")
    ):
        width = usual.length + 3
        yield f"length {width}", replace(usual, length=width, lengths=(width, width - 4, width - 5))


def _change(lab: Lab, situation: Situation) -> float:
    """As in the usual batch, with one other content only."""
    runs = []
    for seed in (3, 1):
        treated, changed = with_other_padding(lab, situation, seed)
        with torch.set_grad_enabled(situation.grad):
            runs.append(treated.forward(treated.copy_of(changed.dtype), changed))
    one, other = (run.tensor.detach() for run in runs)
    return relative_change(one, other, real_outputs(lab, one, situation))


def _explained(lab: Lab, name: str, situation: Situation, change: float) -> Iterator[Variant]:
    """The variant where attention lets padding in; what happens elsewhere in training is mostly meant so."""
    entry = entry_of_content(lab, replace(situation, grad=False), lab.contract.pooled)
    if entry is None and not situation.grad:
        return
    if entry is not None and (entry.rearranges or (situation.training and entry.way is not Way.ATTENTION)):
        return
    sites = [s for _, s in sites_with_nodes(lab, replace(situation, grad=False)) if s.on_padding > 0]
    lost = [place for site in sites for place in site.mask_lost_at]
    places = [*lost, *(site.scores_place for site in sites), *([entry.place] if entry is not None else [])]
    yield Variant(name, change, tuple(dict.fromkeys(places)), tuple(site.key for site in sites))


# ---- a mask that is kept ---------------------------------------------------------------------------------------


def gather_stale(lab: Lab) -> StaleMask:
    """Three calls of one copy with other lengths, the later two against a fresh copy."""
    if lab.contract.mask is None or not lab.contract.has_sequence:
        return StaleMask(False, "the encoder is not told what is padding")
    usual = replace(lab.padded, dtype=lab.own_dtype)
    turned = replace(usual, lengths=(*usual.lengths[1:], usual.lengths[0]), seed=5)
    shorter = replace(usual, length=usual.lengths[1], lengths=tuple(min(n, usual.lengths[1]) for n in turned.lengths))
    used = lab.fresh()
    before = fingerprints(used)
    _run(lab, used, usual)
    kept = {key for key, value in fingerprints(used).items() if before.get(key) != value}
    if not kept:
        return StaleMask(True)
    for situation in (turned, shorter):
        later, first = _run(lab, used, situation), _run(lab, lab.fresh(), situation)
        if first.output is None:
            continue
        if later.output is None or _differ(lab, first, later, situation) > SAME:
            return _stale(lab, usual, first, later, situation, kept)
    return StaleMask(True)


def _stale(
    lab: Lab, usual: Situation, first: Ran, later: Ran, situation: Situation, kept: set[tuple[str, str]]
) -> StaleMask:
    """Whether it is the lengths that are remembered: other contents under the same lengths have to come out right."""
    same_lengths = replace(usual, seed=6)
    used = lab.fresh()
    _run(lab, used, usual)
    after, alone = _run(lab, used, same_lengths), _run(lab, lab.fresh(), same_lengths)
    if after.output is None or alone.output is None or _differ(lab, alone, after, same_lengths) > SAME:
        return StaleMask(False, "more than the mask is remembered from call to call")
    places = tuple(dict.fromkeys(set_in_forward(lab.origin, lab.model, *key) for key in sorted(kept)))
    change = 1.0 if later.output is None else _differ(lab, first, later, situation)
    return StaleMask(True, "", change, later.raised, places)


def _run(lab: Lab, model: nn.Module, situation: Situation) -> Ran:
    with torch.no_grad():
        return lab.forward(model, situation, make_call(lab.contract, situation, lab.device))


def _differ(lab: Lab, one: Ran, other: Ran, situation: Situation) -> float:
    if one.tensor.shape != other.tensor.shape:
        return 1.0
    return relative_change(one.tensor, other.tensor, real_outputs(lab, one.tensor, situation))
