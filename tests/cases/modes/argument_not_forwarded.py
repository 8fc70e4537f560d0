"""Arguments that go nowhere, and arguments that need not go further."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from encdoctor.cases.bases import (
    HEADS,
    LAYERS,
    WIDTH,
    ExplicitAttention,
    PlainEncoder,
    PostNormLayer,
    SdpaEncoder,
    Stack,
    WrappedEncoder,
)


class SwitchLayer(PostNormLayer):
    def __init__(self, attention: nn.Module, norm_first: bool = False) -> None:
        super().__init__(attention)
        self.norm_first = norm_first

    def forward(self, x: Tensor, keep: Tensor | None) -> Tensor:
        if not self.norm_first:
            return super().forward(x, keep)
        x = x + self.attention(self.norm1(x), keep)
        return x + self.feed(self.norm2(x))


class Broken_layers_not_told(SdpaEncoder):
    def __init__(self, norm_first: bool = True) -> None:
        super().__init__()
        self.layers = nn.ModuleList(SwitchLayer(self.Attention()) for _ in range(LAYERS))  # <- here
        self.norm = nn.LayerNorm(WIDTH) if norm_first else nn.Identity()  # type: ignore[assignment]


class Broken_layer_of_torch_not_told(WrappedEncoder):
    def __init__(self, norm_first: bool = True) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, batch_first=True)  # <- here
        norm = nn.LayerNorm(WIDTH) if norm_first else None
        self.encoder = nn.TransformerEncoder(layer, LAYERS, norm, enable_nested_tensor=False)


class Broken_argument_read_nowhere(PlainEncoder):
    def __init__(self, scale: float = 2.0) -> None:  # <- here
        super().__init__()


class Sound_handed_on(SdpaEncoder):
    def __init__(self, norm_first: bool = True) -> None:
        super().__init__()
        self.layers = nn.ModuleList(SwitchLayer(self.Attention(), norm_first) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH) if norm_first else nn.Identity()  # type: ignore[assignment]


class Sound_same_default(WrappedEncoder):
    def __init__(self, norm_first: bool = False) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, batch_first=True)
        norm = nn.LayerNorm(WIDTH) if norm_first else None
        self.encoder = nn.TransformerEncoder(layer, LAYERS, norm, enable_nested_tensor=False)


class Sound_kept_as_an_attribute(Stack):
    """Token ids are one-hot rows; `temperature` is used in forward."""

    class Attention(ExplicitAttention):
        pass

    def __init__(self, temperature: float = 1.5) -> None:
        super().__init__()
        self.temperature = temperature
        self.tokens = nn.Embedding(50, WIDTH)

    def forward(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        """ids: (B, S) token ids. keep: (B, S) bool, True at real tokens."""
        places = torch.arange(ids.shape[1], device=ids.device, dtype=self.tokens.weight.dtype)
        return self.encode(self.tokens(ids) / self.temperature + places[:, None].sin(), keep)
