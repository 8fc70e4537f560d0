"""Pre-norm stacks that hand on their raw sum, and stacks that need no norm at their end."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import HEADS, WIDTH, FusedEncoder, SdpaEncoder, TorchEncoder, WrappedEncoder

DEEP = 8


class Broken_deep_stack(FusedEncoder):
    def make_layers(self) -> nn.ModuleList:
        return nn.ModuleList([self.Layer(self.Attention()) for _ in range(DEEP)])

    def make_parts(self) -> None:
        super().make_parts()
        del self.norm

    def finish(self, x: Tensor) -> Tensor:
        return x

    def forward(self, frames: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        """frames: (B, S, 32) features. pad_mask: (B, S) bool, True at padding."""
        return self.encode(self.embed(frames), None if pad_mask is None else ~pad_mask)  # <- here


class Broken_small_embeddings(SdpaEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        del self.norm
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def finish(self, x: Tensor) -> Tensor:
        return x

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """input_ids: (B, S). attention_mask: (B, S) int, 1 for tokens and 0 for padding."""
        return self.encode(self.embed(input_ids), None if attention_mask is None else attention_mask.bool())  # <- here


class Broken_torch_stack_without_its_norm(WrappedEncoder):
    def __init__(self) -> None:
        super().__init__()
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)
        for layer in self.encoder.layers:
            layer.linear1.reset_parameters()

    def make_layer(self) -> nn.TransformerEncoderLayer:
        return nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout=0.1, batch_first=True, norm_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        """ids: (B, S) token ids, padded with 0."""
        return self.encode(self.embed(ids), ids == 0)  # <- here


class Sound_norm_in_front_of_the_head(SdpaEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH))
        del self.norm

    def finish(self, x: Tensor) -> Tensor:
        return self.head(x)


class Sound_post_norm(TorchEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        nn.init.normal_(self.tokens.weight, std=0.02)


class Sound_hand_written_norm(FusedEncoder):
    def finish(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
