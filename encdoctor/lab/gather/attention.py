"""Gathers what happens at every attention site: what is masked there, how, and what the weights do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from encdoctor.evidence.attention import AttentionSites, Site, UnmaskedSites
from encdoctor.evidence.influence import InfluenceMatrix
from encdoctor.lab.lab import Lab
from encdoctor.lab.layout import Reading, arrange, read_positions
from encdoctor.lab.masking import hidden_together, masks_after, masks_before
from encdoctor.lab.sites import ScorePath, head_dim, score_paths, score_scale
from encdoctor.lab.situations import Situation
from encdoctor.lab.trace import Node, Trace
from encdoctor.model import Place


def gather_attention(lab: Lab) -> AttentionSites:
    """Sites of the padded batch, with masks on and the fused paths off."""
    situation = replace(lab.padded, dtype=lab.dtype)
    if not lab.trace(situation).nodes:
        return AttentionSites((), False, "no operation was recorded")
    sites = tuple(site for _, site in sites_with_nodes(lab, situation))
    if sites:
        return AttentionSites(sites, True)
    return AttentionSites((), False, "no softmax over a product of two computed tensors was recorded")


def gather_unmasked(lab: Lab) -> UnmaskedSites:
    """Sites of a call without padding, where a mask that is made inside shows; only after a symptom."""
    future = lab.get(InfluenceMatrix).future()
    if future is None or future[0] > 0 or future[1] == 0:
        return UnmaskedSites(())
    situation = replace(lab.full, dtype=lab.dtype, masked=False)
    return UnmaskedSites(tuple(site for _, site in sites_with_nodes(lab, situation)))


def sites_with_nodes(lab: Lab, situation: Situation) -> Iterator[tuple[Node, Site]]:
    """Each site of the traced situation with the node of its softmax."""
    trace = lab.trace(situation)
    users, reading = trace.users(), read_positions(lab, situation, trace)
    for path in score_paths(trace):
        yield path.softmax, _describe(trace, path, users, reading)


def _describe(trace: Trace, path: ScorePath, users: dict[int, list[Node]], reading: Reading) -> Site:
    weights, softmax, layout = path.softmax.tensor, path.softmax, reading.layout(path)
    assert weights is not None
    before = masks_before(trace, path.steps, reading, layout)
    after = list(masks_after(trace, softmax, users, reading, layout))
    ordered = arrange(weights, layout)
    real = reading.real_keys(ordered)
    samples, length = reading.keep.shape
    queries, keys = ordered.shape[2], ordered.shape[3]
    return Site(
        key=softmax.key,
        module=softmax.module,
        place=softmax.place,
        scores_place=path.contraction.place,
        foreign=softmax.foreign,
        heads=ordered.shape[1],
        queries=queries,
        keys=keys,
        head_dim=head_dim(path.contraction),
        scale=score_scale(trace, path),
        masks=tuple(hiding.mask for hiding in before),
        after_softmax=tuple(hiding.mask for hiding in after),
        on_padding=_on_padding(ordered, real),
        on_future=float(torch.triu(ordered, 1).amax()) if queries == keys else 0.0,
        on_self=float(torch.diagonal(ordered, dim1=2, dim2=3).amax()) if queries == keys > 1 else None,
        blind_samples=_blind(hidden_together(before), reading),
        mask_lost_at=_mask_lost_at(trace, softmax.module),
        over_batch=keys == samples != length and ordered.shape[0] != samples,
        aligned=real is not None,
        own_positions=real is not None and keys == length,
    )


def _on_padding(weights: Tensor, real: Tensor | None) -> float:
    if real is None:
        return 0.0
    leak = weights.masked_fill(real[:, None, None, :], 0.0)
    if weights.shape[2] == real.shape[1]:
        leak = leak.masked_fill(~real[:, None, :, None], 0.0)
    return float(torch.nan_to_num(leak).amax())


def _blind(hidden: Tensor | None, reading: Reading) -> int:
    """How many samples have a head in which no real query sees any key."""
    if hidden is None or hidden.shape[0] != reading.keep.shape[0]:
        return 0
    queries = reading.real.get(hidden.shape[2])
    if queries is None:
        return 0
    return int((hidden.all(3) | ~queries[:, None]).all(2).any(1).sum())


def _mask_lost_at(trace: Trace, module: str) -> tuple[Place, ...]:
    """The calls between the last module that is handed the mask and the one that attends."""
    parts = module.split(".")
    chain = [".".join(parts[:n]) for n in range(len(parts) + 1)]
    handed = [(name, *trace.handed[name]) for name in chain if name in trace.handed]
    given = [i for i, (_, _, masked) in enumerate(handed) if masked]
    if not given:
        return ()
    return tuple(place for _, place, _ in handed[given[-1] + 1 :] if place.own)
