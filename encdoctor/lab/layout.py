"""Finds out how scores are laid out: which axis is the keys', which sample a row belongs to, which keys are real.

What the shape leaves open is measured by changing contents and looking which scores move: where a [CLS] token was put,
whether folded heads run faster or slower than samples, how many frames a sentence has behind a strided stem.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from encdoctor.evidence.influence import PaddingInfluence
from encdoctor.lab.gather.influence import with_other_padding
from encdoctor.lab.lab import Lab, NotMeasured
from encdoctor.lab.sites import ScorePath, score_paths
from encdoctor.lab.situations import Situation
from encdoctor.lab.trace import Trace

# [CLS], [SEP], a summary token: what an encoder puts beside the input's own positions.
MOST_EXTRA = 2
# A stem shortens all lengths alike, up to what its windows lose at the border; local windows do not.
FARTHEST_FROM_STRIDE = 2


@dataclass(frozen=True)
class Layout:
    """Axes of one score tensor. `heads_slower` tells that a folded axis runs through the samples first."""

    shape: tuple[int, ...]
    keys: int
    queries: int
    batch: int
    samples: int
    heads_slower: bool = False


@dataclass(frozen=True)
class Reading:
    """What is known about the positions at the sites of one trace.

    `real` maps a number of keys to (B, K), True at real ones; `heads_slower` lists softmaxes with head-major folding.
    """

    keep: Tensor
    real: dict[int, Tensor]
    heads_slower: frozenset[str]

    def layout(self, path: ScorePath) -> Layout:
        """The axes at one site."""
        weights = path.softmax.tensor
        assert weights is not None
        return _axes(weights, path.dim, self.keep, path.softmax.key in self.heads_slower)

    def real_keys(self, ordered: Tensor) -> Tensor | None:
        """(B, K) real keys for (B, H, Q, K) scores, None where its keys are not known positions."""
        return self.real.get(ordered.shape[3]) if ordered.shape[0] == self.keep.shape[0] else None


def read_positions(lab: Lab, situation: Situation, trace: Trace) -> Reading:
    """Measures what shapes leave open; runs more traces only for folded heads, or where padding leaks."""
    assert trace.keep is not None
    keep, paths = trace.keep, list(score_paths(trace))
    plain = Reading(keep, {keep.shape[1]: keep, **_beside(lab, keep, paths)}, frozenset())
    slower = _heads_slower(lab, situation, keep, paths)
    if not situation.padded or not _leaks(lab):
        return replace(plain, heads_slower=slower)
    real = {**plain.real, **_shorter(lab, situation, keep, paths), **_longer(lab, situation, plain, paths)}
    return Reading(keep, real, slower)


def arrange(scores: Tensor, layout: Layout) -> Tensor:
    """(B, H, Q, K), with folded heads unfolded. Raises RuntimeError for scores that the softmax's axes do not fit."""
    if tuple(scores.shape) != layout.shape:
        scores = scores.reshape(layout.shape)
    if scores.dim() < 3:
        return scores.reshape(1, 1, *scores.shape[-2:])
    heads = [i for i in range(scores.dim()) if i not in (layout.keys, layout.queries, layout.batch)]
    moved = scores.permute(layout.batch, *heads, layout.queries, layout.keys)
    moved = moved.reshape(moved.shape[0], -1, *moved.shape[-2:])
    if moved.shape[0] == layout.samples or moved.shape[0] % layout.samples or moved.shape[1] != 1:
        return moved
    if layout.heads_slower:
        return moved.reshape(-1, layout.samples, *moved.shape[-2:]).transpose(0, 1)
    return moved.reshape(layout.samples, -1, *moved.shape[-2:])


def _axes(weights: Tensor, key_dim: int, keep: Tensor, heads_slower: bool) -> Layout:
    samples, length = keep.shape
    others = [i for i in range(weights.dim()) if i != key_dim]
    batch = others[0]
    if weights.dim() > 3 and weights.shape[batch] != samples:
        batch = next((i for i in others[1:-1] if weights.shape[i] == samples), batch)
    rest = [i for i in others if i != batch]
    same = [i for i in rest if weights.shape[i] == weights.shape[key_dim]]
    queries = same or [i for i in rest if weights.shape[i] >= length] or rest or others
    return Layout(
        tuple(weights.shape), key_dim, min(queries, key=lambda i: abs(i - key_dim)), batch, samples, heads_slower
    )


# ---- measured --------------------------------------------------------------------------------------------------


def _leaks(lab: Lab) -> bool:
    try:
        return lab.get(PaddingInfluence).leaks
    except NotMeasured:
        return False


def _beside(lab: Lab, keep: Tensor, paths: Iterable[ScorePath]) -> dict[int, Tensor]:
    """Real keys where a token or two of the encoder's own stand beside the input's, as the output's offset has it."""
    found: dict[int, Tensor] = {}
    for path in paths:
        keys = path.softmax.tensor.shape[path.dim] if path.softmax.tensor is not None else 0
        extra = keys - keep.shape[1]
        if not 0 < extra <= MOST_EXTRA:
            continue
        front = lab.contract.output_offset
        front = extra if front is None else min(front, extra)
        ones = keep.new_ones(keep.shape[0], extra)
        found[keys] = torch.cat([ones[:, :front], keep, ones[:, front:]], 1)
    return found


def _longer(lab: Lab, situation: Situation, plain: Reading, paths: list[ScorePath]) -> dict[int, Tensor]:
    """The same, measured: the columns of the scores that move when padding's content does."""
    length = plain.keep.shape[1]
    unclear = [p for p in paths if p.softmax.tensor is not None and p.softmax.tensor.shape[p.dim] > length]
    if not unclear:
        return {}
    treated, changed = with_other_padding(lab, situation, 1)
    others = {path.contraction.key: path for path in score_paths(treated.trace(changed))}
    found: dict[int, Tensor] = {}
    for path in unclear:
        moved = _moved_columns(path, others.get(path.contraction.key), plain)
        if moved is None or moved.shape[1] in found:
            continue
        if torch.equal(moved.sum(1), (~plain.keep).sum(1)):
            found[moved.shape[1]] = ~moved
    return found


def _moved_columns(path: ScorePath, other: ScorePath | None, plain: Reading) -> Tensor | None:
    if other is None or path.contraction.tensor is None or other.contraction.tensor is None:
        return None
    one, two = path.contraction.tensor, other.contraction.tensor
    weights = path.softmax.tensor
    if weights is None or one.shape != two.shape or one.numel() != weights.numel():
        return None
    ordered = arrange((one != two).reshape(weights.shape), plain.layout(path))
    return ordered.any(1).all(1) if ordered.shape[0] == plain.keep.shape[0] else None


def _shorter(lab: Lab, situation: Situation, keep: Tensor, paths: list[ScorePath]) -> dict[int, Tensor]:
    """Real keys behind a strided stem: as many as the sentence has when it runs alone."""
    strided = [p for p in paths if p.softmax.tensor is not None and 1 < p.softmax.tensor.shape[p.dim] < keep.shape[1]]
    if not strided:
        return {}
    alone: dict[str, list[int]] = {path.softmax.key: [] for path in strided}
    for length in situation.lengths:
        trace = lab.trace(replace(situation, lengths=(length,) * situation.batch, length=length))
        for path in score_paths(trace):
            if path.softmax.key in alone and path.softmax.tensor is not None:
                alone[path.softmax.key].append(path.softmax.tensor.shape[path.dim])
    found: dict[int, Tensor] = {}
    for path in strided:
        counts = alone[path.softmax.key]
        keys = path.softmax.tensor.shape[path.dim] if path.softmax.tensor is not None else 0
        if len(counts) == situation.batch and all(
            abs(count - n * keys / situation.length) <= FARTHEST_FROM_STRIDE
            for count, n in zip(counts, situation.lengths, strict=True)
        ):
            found[keys] = torch.arange(keys, device=keep.device) < torch.tensor(counts, device=keep.device)[:, None]
    return found


def _heads_slower(lab: Lab, situation: Situation, keep: Tensor, paths: list[ScorePath]) -> frozenset[str]:
    """Softmaxes over folded (H·B, Q, K) scores: the rows that move with the first sample lie B apart."""
    folded = [p for p in paths if not p.softmax.foreign and _is_folded(p, keep.shape[0])]
    if not folded or not lab.contract.has_sequence:
        return frozenset()
    places = range(situation.length if situation.side == "left" else situation.lengths[0])
    other = lab.trace(replace(situation, replaced=tuple((0, p) for p in places)))
    others = {path.contraction.key: path.contraction.tensor for path in score_paths(other)}
    slower = set()
    for path in folded:
        one, two = path.contraction.tensor, others.get(path.contraction.key)
        if one is None or two is None or one.shape != two.shape or one.shape[0] % keep.shape[0]:
            continue
        moved = (one != two).flatten(1).any(1)
        apart = torch.arange(len(moved), device=moved.device) % keep.shape[0] == 0
        if torch.equal(moved, apart):
            slower.add(path.softmax.key)
    return frozenset(slower)


def _is_folded(path: ScorePath, samples: int) -> bool:
    weights = path.softmax.tensor
    return weights is not None and weights.dim() == 3 and weights.shape[0] != samples and not weights.shape[0] % samples
