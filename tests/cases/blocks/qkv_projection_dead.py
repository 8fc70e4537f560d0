"""Both factors of a product at zero, and one of them at zero."""

from __future__ import annotations

from torch import nn

from encdoctor.cases.bases import (
    WIDTH,
    ExplicitAttention,
    FusedAttention,
    FusedEncoder,
    PlainEncoder,
    SdpaAttention,
    SdpaEncoder,
)


class Broken_queries_and_keys(PlainEncoder):
    class Attention(ExplicitAttention):
        def __init__(self) -> None:
            super().__init__()
            for part in (self.query, self.key):  # <- in layers.*
                nn.init.zeros_(part.weight)
                nn.init.zeros_(part.bias)


class Broken_values_and_output(FusedEncoder):
    class Attention(FusedAttention):
        def __init__(self) -> None:
            super().__init__()
            nn.init.zeros_(self.qkv.weight[2 * WIDTH :])  # <- in layers.*
            nn.init.zeros_(self.out.weight)


class Broken_fused_kernel(SdpaEncoder):
    class Attention(SdpaAttention):
        def __init__(self) -> None:
            super().__init__()
            nn.init.zeros_(self.qkv.weight[: 2 * WIDTH])  # <- in layers.*


class Sound_output_at_zero(FusedEncoder):
    class Attention(FusedAttention):
        def __init__(self) -> None:
            super().__init__()
            nn.init.zeros_(self.out.weight)


class Sound_queries_at_zero(PlainEncoder):
    class Attention(ExplicitAttention):
        def __init__(self) -> None:
            super().__init__()
            nn.init.zeros_(self.query.weight)
            nn.init.zeros_(self.query.bias)
