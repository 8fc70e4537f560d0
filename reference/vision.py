"""Images as sequences of patches (Dosovitskiy et al. 2021, ViT)."""

import torch
from torch import Tensor, nn

from encdoctor.reference.positions import sinusoidal


class PatchEmbedding(nn.Module):
    """Cuts an image into N square patches, projects each to D dimensions, and puts [CLS] in front.

    With ``sinusoidal_2d`` it also adds a fixed position, half of whose dimensions encode the row and half
    the column, to the patches; otherwise the encoder's own position (``position="learned"`` with
    ``max_length=patches.length``) tells them apart. Use it as an encoder's ``embedding``::

        patches = PatchEmbedding(image_size=8, patch_size=2, d_model=64, channels=1)
        config = EncoderConfig(vocab_size=None, d_model=64, max_length=patches.length, position="learned")
        hidden = Encoder(config, patches)(pixel_values)
    """

    def __init__(
        self,
        image_size: int,
        patch_size: int,
        d_model: int,
        *,
        channels: int = 3,
        cls: bool = True,
        sinusoidal_2d: bool = False,
    ) -> None:
        super().__init__()
        if image_size % patch_size:
            raise ValueError(f"image_size ({image_size}) is not divisible by patch_size ({patch_size})")
        if sinusoidal_2d and d_model % 4:
            raise ValueError(f"2-D sinusoidal positions need a d_model divisible by 4, not {d_model}")
        self.image_size, self.channels, self.sinusoidal_2d = image_size, channels, sinusoidal_2d
        self.side = image_size // patch_size
        self.projection = nn.Conv2d(channels, d_model, kernel_size=patch_size, stride=patch_size)
        nn.init.normal_(self.projection.weight, std=(channels * patch_size**2) ** -0.5)  # LeCun et al. 1998
        nn.init.zeros_(self.projection.bias)  # type: ignore[arg-type]
        self.cls = nn.Parameter(torch.randn(1, 1, d_model) * 0.02) if cls else None

    @property
    def length(self) -> int:
        """S: the number of patches, N, and [CLS]."""
        return self.side**2 + (self.cls is not None)

    def positions(self, d_model: int, device: torch.device) -> Tensor:
        """(N, D) table: the row's sinusoids in the first half of D, the column's in the second."""
        table = sinusoidal(self.side, d_model // 2, device)  # (side, D / 2)
        rows = table[:, None].expand(-1, self.side, -1)
        columns = table[None].expand(self.side, -1, -1)
        return torch.cat((rows, columns), dim=-1).flatten(0, 1)

    def forward(self, pixel_values: Tensor) -> Tensor:
        """(B, C, height, width) → (B, S, D), patches row by row."""
        size = (self.channels, self.image_size, self.image_size)
        if pixel_values.shape[1:] != size:
            raise ValueError(f"pixel_values must be (B, {', '.join(map(str, size))}), not {tuple(pixel_values.shape)}")
        x: Tensor = self.projection(pixel_values).flatten(2).transpose(1, 2)  # (B, N, D)
        if self.sinusoidal_2d:
            x = x + self.positions(x.shape[-1], x.device).to(x.dtype)
        if self.cls is not None:
            x = torch.cat((self.cls.expand(x.shape[0], -1, -1), x), dim=1)
        return x
