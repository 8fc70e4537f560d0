"""The weights to start from."""

import math

from torch import Tensor, nn

from encdoctor.reference.attention import Attention
from encdoctor.reference.blocks import FeedForward
from encdoctor.reference.config import EncoderConfig


def xavier(weight: Tensor, parts: int = 1) -> None:
    """Glorot and Bengio 2010, uniform; a fused weight as the `parts` matrices that it stands for."""
    for part in weight.chunk(parts):
        nn.init.xavier_uniform_(part)


def initialise(root: nn.Module, config: EncoderConfig) -> None:
    """Sets every weight below ``root``; biases start at zero, norms at the identity.

    - ``xavier``: Xavier-uniform matrices; embeddings N(0, 1/D) where they will be scaled by √D
    - ``normal``: N(0, 0.02), as in BERT
    - ``depth_scaled``: N(0, 0.02), and the two projections that write to the residual path divided by
      √(2 · num_layers), so that its variance does not grow with depth (Radford et al. 2019)
    """
    for module in root.modules():
        if isinstance(module, nn.Linear):
            if config.initialisation == "xavier":
                xavier(module.weight)
            else:
                nn.init.normal_(module.weight, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            scaled = config.initialisation == "xavier" and config.scale_embedding
            nn.init.normal_(module.weight, std=config.d_model**-0.5 if scaled else 0.02)
    for module in root.modules():
        if config.initialisation == "xavier" and isinstance(module, Attention) and module.fused:
            xavier(module.qkv.weight, parts=3)
        elif config.initialisation == "xavier" and isinstance(module, FeedForward) and module.gated:
            xavier(module.expand.weight, parts=2)
        elif config.initialisation == "depth_scaled" and isinstance(module, Attention | FeedForward):
            last = module.output if isinstance(module, Attention) else module.contract
            nn.init.normal_(last.weight, std=0.02 / math.sqrt(2 * config.num_layers))
