"""Attention masks. One convention everywhere: a mask is boolean, and **True means "may attend"**.

A mask broadcasts to (B, H, S, S): batch, head, query, key. Masks are combined with ``&``. What they
hide gets no weight at all, in every dtype: scores become −inf, never a large finite number.
"""

import torch
from torch import Tensor


def from_lengths(lengths: Tensor, max_length: int) -> Tensor:
    """(B,) lengths → (B, S) mask, True on the first ``lengths[b]`` positions of sample b."""
    return torch.arange(max_length, device=lengths.device) < lengths[:, None]


def from_pad_id(input_ids: Tensor, pad_id: int) -> Tensor:
    """(B, S) ids → (B, S) mask, True wherever there is a real token."""
    return input_ids != pad_id


def distances(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """(Q, K) table of j − i: how far key j lies to the right of query i."""
    return torch.arange(keys, device=device) - torch.arange(queries, device=device)[:, None]


def causal(length: int, device: torch.device | None = None) -> Tensor:
    """(S, S) mask: no query sees a later key."""
    return distances(length, length, device) <= 0


def window(length: int, radius: int, device: torch.device | None = None) -> Tensor:
    """(S, S) mask: each query sees itself and ``radius`` keys on either side."""
    return distances(length, length, device).abs() <= radius


def prefix(length: int, prefix_length: int, device: torch.device | None = None) -> Tensor:
    """(S, S) mask: the first ``prefix_length`` keys are seen by all, the others only from later on."""
    keys = torch.arange(length, device=device)
    return causal(length, device) | (keys < prefix_length)


def combine(*masks: Tensor | None) -> Tensor | None:
    """What all of the masks allow, (B, H, S, S) after broadcasting; None hides nothing.

    Each mask is taken as :func:`broadcastable` takes it, so that (B, S) masks may stand beside (B, 1, S, S)
    ones; write an (S, S) mask as ``mask[None, None]``.
    """
    combined: Tensor | None = None
    for mask in masks:
        if mask is not None:
            mask = broadcastable(mask)
            combined = mask if combined is None else combined & mask
    return combined


def broadcastable(mask: Tensor) -> Tensor:
    """A user's mask, (B, S) or 4-D, boolean or 0/1 integers → a boolean (B|1, H|1, S|1, S) mask.

    A 2-D mask is always (B, S), "which keys are real", also where B = S.
    """
    if mask.is_floating_point():
        raise TypeError(
            f"attention_mask must be boolean or 0/1 integers (True = may attend), not {mask.dtype}: "
            "write mask > 0.5 for a mask of ones and zeros, mask == 0 for an additive one"
        )
    if mask.dim() == 2:
        mask = mask[:, None, None, :]  # (B, 1, 1, S)
    elif mask.dim() != 4:
        raise ValueError(
            f"attention_mask must have the shape (B, S) or one that broadcasts to (B, H, S, S), "
            f"not {tuple(mask.shape)}: insert the missing dimensions, as in mask[:, None]"
        )
    return mask.bool()


def check_shape(mask: Tensor, batch: int, heads: int, length: int) -> None:
    """ValueError where a 4-D mask does not broadcast to (B, H, S, S)."""
    wanted = (batch, heads, length, length)
    if any(have not in (1, want) for have, want in zip(mask.shape, wanted, strict=True)):
        raise ValueError(f"attention_mask, as (B, H, S, S), is {tuple(mask.shape)}: it does not broadcast to {wanted}")


def open_empty_rows(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Makes a mask safe for softmax, which is 0 / 0 over a row that hides every key.

    Returns the mask with such rows opened, and (…, S, 1) "this query sees something": the caller sets
    the others' result to zero, which also stops their gradient.
    """
    sees_something = mask.any(dim=-1, keepdim=True)
    return mask | ~sees_something, sees_something


def additive(mask: Tensor, bias: Tensor) -> Tensor:
    """A score bias with −inf wherever the mask hides a key: both in one tensor to add to the scores."""
    return bias.masked_fill(~mask, float("-inf"))
