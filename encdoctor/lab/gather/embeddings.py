"""Follows looked-up token vectors to where positions are added."""

from __future__ import annotations

from dataclasses import replace

import torch

from encdoctor.contract import InputKind
from encdoctor.evidence.embeddings import EmbeddingScale
from encdoctor.lab.batches import keep_mask, make_content
from encdoctor.lab.cuts import rms
from encdoctor.lab.lab import Lab
from encdoctor.lab.repair.intervene import reads
from encdoctor.lab.sites import VIEWS, base_name
from encdoctor.lab.trace import CONTENT, PARAMETER, Node, Trace

SIZING = VIEWS | {"mul", "div", "native_dropout"}
NORMS = {"native_layer_norm", "native_batch_norm", "native_group_norm", "_fused_rms_norm", "rsqrt"}


def gather_embedding_scale(lab: Lab) -> EmbeddingScale:
    """The first sum of a token part with something that does not depend on the tokens."""
    if lab.contract.input is not InputKind.IDS:
        return EmbeddingScale(False, "the input is not token ids")
    situation = replace(lab.full, dtype=lab.dtype)
    trace = lab.trace(situation)
    ids = make_content(lab.contract, situation, keep_mask(situation, lab.device))
    lookup = next(
        (n for n in trace.nodes if n.op in ("embedding", "index", "index_select") and reads(n.refs, ids)), None
    )
    if lookup is None:
        return EmbeddingScale(False, "no lookup of the ids was recorded")
    found = _position_sum(trace, trace.users(), lookup)
    if found is None:
        return EmbeddingScale(False, "nothing independent of the tokens is added to them")
    added, node, normalised = found
    token = next(r for r in added.refs if r.node == node.index)
    position = next(r for r in added.refs if r.node != node.index)
    sentence, place = _harm(lab)
    return EmbeddingScale(
        True,
        token=rms(token.tensor),
        position=rms(position.tensor),
        learned=bool(position.taint & PARAMETER),
        normalised=normalised,
        d_model=int(token.tensor.shape[-1]),
        sentence_change=sentence,
        position_change=place,
        factor=_factor(lookup, token.tensor, normalised),
        key=lookup.key,
        lookup=lookup.place,
        added=added.place,
    )


def _factor(lookup: Node, token: torch.Tensor, normalised: bool) -> float:
    """What size the token part has at the sum, as a multiple of what was looked up."""
    looked_up = lookup.tensor
    size = 0.0 if looked_up is None or normalised or looked_up.numel() != token.numel() else rms(looked_up)
    return rms(token) / size if size else 1.0


def _position_sum(
    trace: Trace, users: dict[int, list[Node]], node: Node, normalised: bool = False, depth: int = 0
) -> tuple[Node, Node, bool] | None:
    """(the sum, the operand that holds tokens, whether a norm came before)."""
    for user in users.get(node.index, []):
        op = base_name(user.op)
        if op == "add" and len(user.refs) == 2:
            other = next((r for r in user.refs if r.node != node.index), None)
            if other is not None and not other.taint & CONTENT and other.tensor.dim() >= 2:
                return user, node, normalised
        if (op in SIZING or op in NORMS or op == "add") and depth < 10:
            found = _position_sum(trace, users, user, normalised or op in NORMS, depth + 1)
            if found is not None:
                return found
    return None


def _harm(lab: Lab) -> tuple[float, float]:
    """How far outputs differ between sentences, and between positions, relative to their size."""
    situation = replace(lab.full, dtype=lab.dtype)
    first, second = lab.run(situation).tensor, lab.run(replace(situation, seed=situation.seed + 1)).tensor
    size = rms(first)
    if size == 0 or first.shape != second.shape or first.shape[1] < 2:
        return 0.0, 0.0
    return rms(first - second) / size, rms(first - torch.roll(first, 1, 1)) / size
