"""Parts that nothing reads, and parts that wait for another branch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import (
    WIDTH,
    ExplicitAttention,
    FusedEncoder,
    PlainEncoder,
    PostNormLayer,
    SdpaEncoder,
    TorchEncoder,
    WrappedEncoder,
)


class Broken_projection_forgotten(PlainEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.project_out = nn.Linear(WIDTH, WIDTH)  # <- here


class Broken_template_kept(WrappedEncoder):
    def __init__(self) -> None:
        super().__init__()
        self.layer = self.make_layer()  # <- here
        self.encoder = nn.TransformerEncoder(self.layer, 2, enable_nested_tensor=False)


class Broken_bias_never_added(FusedEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.type_bias = nn.Parameter(torch.randn(WIDTH))  # <- here


class Broken_norm_in_every_layer(SdpaEncoder):
    class Layer(PostNormLayer):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__(attention)
            self.norm3 = nn.LayerNorm(WIDTH)  # <- here


class Broken_second_table(TorchEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.segments = nn.Embedding(2, WIDTH)  # <- here


class Broken_result_dropped(SdpaEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.mixer = nn.Linear(WIDTH, WIDTH)  # <- here

    def finish(self, x: Tensor) -> Tensor:
        self.mixer(x)
        return super().finish(x)


class Sound_pooler_on_request(PlainEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.pooler = nn.Linear(WIDTH, WIDTH)

    def pool(self, x: Tensor) -> Tensor:
        return torch.tanh(self.pooler(x[:, 0]))


class Sound_segments_when_given(SdpaEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.segments = nn.Embedding(2, WIDTH)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """input_ids: (B, S). attention_mask: (B, S) int, 1 for tokens. token_type_ids: (B, S) int, 0 or 1."""
        x = self.embed(input_ids)
        if token_type_ids is not None:
            x = x + self.segments(token_type_ids)
        return self.encode(x, None if attention_mask is None else attention_mask.bool())


class Sound_only_in_training(FusedEncoder):
    def make_parts(self) -> None:
        super().make_parts()
        self.mask_token = nn.Parameter(torch.zeros(WIDTH))

    def embed(self, frames: Tensor) -> Tensor:
        x = super().embed(frames)
        if not self.training:
            return x
        hidden = torch.rand(x.shape[:2], device=x.device) < 0.1
        return torch.where(hidden[..., None], self.mask_token, x)


class Sound_unpacked(TorchEncoder):
    class Attention(nn.Module):
        """Keeps its projections in a dict and reads them in a loop."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = ExplicitAttention()
            self.gains = nn.ParameterDict({name: nn.Parameter(torch.ones(WIDTH)) for name in ("before", "after")})

        def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
            for gain in self.gains.values():
                x = x * gain
            return self.inner(x, keep)
