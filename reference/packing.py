"""Padded batches without the padding: what is not there costs nothing."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encdoctor.reference.encoder import Encoder
from encdoctor.reference.patterns import Kernel, Pattern


class Packed:
    """Sequences laid end to end in one row; each attends to itself alone, by a pattern of its own."""

    def __init__(self, lengths: Sequence[int], patterns: Sequence[Pattern]) -> None:
        self.lengths, self.patterns = list(lengths), list(patterns)

    def __call__(self, kernel: Kernel, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """(1, N, H, head_dim) → (1, N, H, head_dim), N the sum of the lengths."""
        pieces = zip(*(torch.split(t, self.lengths, dim=1) for t in (q, k, v)), strict=True)
        contexts = [pattern(kernel, *piece) for pattern, piece in zip(self.patterns, pieces, strict=True)]
        return torch.cat(contexts, dim=1)


class PackedEncoder(nn.Module):
    """An encoder, run on the real tokens of a right-padded batch only.

    The result is the encoder's own under the mask of these lengths. The lengths are numbers on the host, as
    the code that padded the batch has them: reading them from a tensor would make the device wait.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(
        self,
        input_ids: Tensor | None = None,
        *,
        lengths: Sequence[int],
        inputs_embeds: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        """Encodes a batch.

        Args:
            input_ids: (B, S) token ids, sample b's in the first ``lengths[b]`` positions.
            lengths: B numbers from 1 to S.
            inputs_embeds: (B, S, D) embeddings instead of ``input_ids``.
            token_type_ids: (B, S) segment numbers.

        Returns:
            (B, S, D) hidden states, zero at padding.
        """
        encoder = self.encoder
        if self.training and encoder.config.drop_path:
            raise ValueError("drop_path skips whole samples, which a packed batch does not tell apart")
        x = encoder.embed(input_ids, inputs_embeds, token_type_ids)
        if len(lengths) != x.shape[0] or not all(1 <= n <= x.shape[1] for n in lengths):
            raise ValueError(f"lengths must be {x.shape[0]} numbers from 1 to {x.shape[1]}, not {list(lengths)}")
        patterns = {n: encoder.pattern(x[:1, :n], None) for n in set(lengths)}
        rotation = encoder.rotation(x)
        if rotation is not None:
            rotation = rotation.packed(lengths)
        packed = torch.cat([sample[:n] for sample, n in zip(x, lengths, strict=True)])[None]  # (1, N, D)
        pattern = Packed(lengths, [patterns[n] for n in lengths])
        hidden = encoder.run_layers(packed, pattern, rotation)[0]  # (N, D)
        padded = nn.utils.rnn.pad_sequence(list(torch.split(hidden, list(lengths))), batch_first=True)
        return F.pad(padded, (0, 0, 0, x.shape[1] - padded.shape[1]))
