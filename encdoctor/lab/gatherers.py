"""Which function gathers which evidence, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from encdoctor.evidence.arguments import Arguments
from encdoctor.evidence.attention import AttentionSites, UnmaskedSites
from encdoctor.evidence.blocks import Blocks
from encdoctor.evidence.derivative import Derivative
from encdoctor.evidence.devices import LooseTensors, MetaRun
from encdoctor.evidence.edges import EdgeShapes, TrimmedOutput
from encdoctor.evidence.embeddings import EmbeddingScale
from encdoctor.evidence.exponentials import Exponentials
from encdoctor.evidence.gradients import Backwards, Gradients
from encdoctor.evidence.influence import InfluenceMatrix, PaddingInfluence, SampleMixing
from encdoctor.evidence.initialisation import Initialisation
from encdoctor.evidence.layers import Layers
from encdoctor.evidence.leaks import PaddingAmount, PaddingEntry
from encdoctor.evidence.learning import TinyFit
from encdoctor.evidence.masks import MaskDtypes, NoMask, StaleMask, Variants, ZeroPadding
from encdoctor.evidence.mixing import SampleCrossing, TokenMixing
from encdoctor.evidence.modes import Repeats, TrainMode
from encdoctor.evidence.modules import ModuleTree
from encdoctor.evidence.norms import Norms
from encdoctor.evidence.numerics import EmptyRow, HalfPrecision
from encdoctor.evidence.outputs import OutputFacts
from encdoctor.evidence.parts import Parts
from encdoctor.evidence.pooling import TokenPooling
from encdoctor.evidence.positions import Order, PositionPart, PositionReach
from encdoctor.evidence.precision import Backends, Divergence
from encdoctor.evidence.roles import Roles
from encdoctor.evidence.rotary import Rotary
from encdoctor.evidence.roundtrip import RoundTrip
from encdoctor.evidence.runs import ForwardRuns
from encdoctor.evidence.scores import AttentionWeights, Scores
from encdoctor.evidence.shifts import DistanceBias, LeftPadding
from encdoctor.lab.gather.amounts import gather_amount
from encdoctor.lab.gather.arguments import gather_arguments
from encdoctor.lab.gather.attention import gather_attention, gather_unmasked
from encdoctor.lab.gather.attention_weights import gather_weights
from encdoctor.lab.gather.backwards import gather_backwards
from encdoctor.lab.gather.blocks import gather_blocks
from encdoctor.lab.gather.crossing import gather_crossing
from encdoctor.lab.gather.derivative import gather_derivative
from encdoctor.lab.gather.devices import gather_loose
from encdoctor.lab.gather.edges import gather_edges, gather_trimmed
from encdoctor.lab.gather.embeddings import gather_embedding_scale
from encdoctor.lab.gather.exponentials import gather_exponentials
from encdoctor.lab.gather.fit import gather_fit
from encdoctor.lab.gather.gradients import gather_gradients
from encdoctor.lab.gather.influence import gather_matrix, gather_mixing, gather_padding
from encdoctor.lab.gather.initialisation import gather_initialisation
from encdoctor.lab.gather.layers import gather_layers
from encdoctor.lab.gather.leaks import gather_entry
from encdoctor.lab.gather.mask_calls import gather_dtypes, gather_no_mask, gather_zero_padding
from encdoctor.lab.gather.meta_run import gather_meta_run
from encdoctor.lab.gather.mixing import gather_token_mixing
from encdoctor.lab.gather.modes import gather_repeats, gather_train_mode
from encdoctor.lab.gather.modules import gather_modules
from encdoctor.lab.gather.norms import gather_norms
from encdoctor.lab.gather.numerics import gather_empty_row, gather_half
from encdoctor.lab.gather.order import gather_order
from encdoctor.lab.gather.output_facts import gather_outputs
from encdoctor.lab.gather.parts import gather_parts
from encdoctor.lab.gather.pooling import gather_pooling
from encdoctor.lab.gather.positions import gather_positions
from encdoctor.lab.gather.precision import gather_backends, gather_divergence
from encdoctor.lab.gather.reach import gather_reach
from encdoctor.lab.gather.roles import gather_roles
from encdoctor.lab.gather.rotary import gather_rotary
from encdoctor.lab.gather.roundtrip import gather_roundtrip
from encdoctor.lab.gather.runs import gather_runs
from encdoctor.lab.gather.scores import gather_scores
from encdoctor.lab.gather.shifts import gather_bias, gather_left_padding
from encdoctor.lab.gather.variants import gather_stale, gather_variants
from encdoctor.lab.lab import Lab

# In the order in which they run: cheap probes first, training last.
GATHERERS: dict[type, Callable[[Lab], Any]] = {
    ForwardRuns: gather_runs,
    SampleMixing: gather_mixing,
    PaddingInfluence: gather_padding,
    ModuleTree: gather_modules,
    Arguments: gather_arguments,
    AttentionSites: gather_attention,
    PaddingEntry: gather_entry,
    PaddingAmount: gather_amount,
    MaskDtypes: gather_dtypes,
    NoMask: gather_no_mask,
    ZeroPadding: gather_zero_padding,
    StaleMask: gather_stale,
    Variants: gather_variants,
    Blocks: gather_blocks,
    Layers: gather_layers,
    Roles: gather_roles,
    Initialisation: gather_initialisation,
    Scores: gather_scores,
    AttentionWeights: gather_weights,
    InfluenceMatrix: gather_matrix,
    UnmaskedSites: gather_unmasked,
    Order: gather_order,
    PositionPart: gather_positions,
    Rotary: gather_rotary,
    PositionReach: gather_reach,
    LeftPadding: gather_left_padding,
    DistanceBias: gather_bias,
    TokenMixing: gather_token_mixing,
    LooseTensors: gather_loose,
    MetaRun: gather_meta_run,
    EdgeShapes: gather_edges,
    TrimmedOutput: gather_trimmed,
    SampleCrossing: gather_crossing,
    EmbeddingScale: gather_embedding_scale,
    EmptyRow: gather_empty_row,
    HalfPrecision: gather_half,
    Divergence: gather_divergence,
    Backends: gather_backends,
    Norms: gather_norms,
    Exponentials: gather_exponentials,
    Repeats: gather_repeats,
    TrainMode: gather_train_mode,
    Gradients: gather_gradients,
    Backwards: gather_backwards,
    Derivative: gather_derivative,
    Parts: gather_parts,
    RoundTrip: gather_roundtrip,
    OutputFacts: gather_outputs,
    TokenPooling: gather_pooling,
    TinyFit: gather_fit,
}
TRAINS = frozenset({TinyFit})


def gatherer_of(kind: type) -> Callable[[Lab], Any]:
    """The function that gathers evidence of that type."""
    return GATHERERS[kind]
