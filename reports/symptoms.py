"""How people describe what they see, and PyTorch's own error texts, mapped to the rules to look at, likeliest first.

Collected from public reports; the texts in `patterns` are torch's. Nothing here loads torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Symptom:
    """What is seen, regular expressions that recognise it in a report or traceback, slugs of rules, and advice."""

    seen: str
    patterns: tuple[str, ...]
    rules: tuple[str, ...]
    advice: str = ""


SYMPTOMS = (
    Symptom(
        "The loss is NaN, at once or after some batches",
        (r"loss\W+(is|becomes|turns)?\W*nan", r"\bnan\b.*(loss|output|batch)", r"(loss|output)s?\b.*\bnan\b"),
        ("fully-padded-row-nan", "fp16-mask-overflow", "nan-gradient", "fp16-nan", "unstable-softmax"),
        "the report names the first operation that is not finite",
    ),
    Symptom(
        "Forward is fine, gradients are NaN",
        (r"grad\w*\b.*\b(nan|inf)\b", r"\bnan\b.*grad", r"returned nan values in its"),
        ("nan-gradient", "fully-padded-row-nan"),
    ),
    Symptom(
        "NaN or overflow only with half precision or autocast",
        (
            r"(fp16|half|amp|autocast|mixed precision|bf16|bfloat16).*(nan|inf|overflow)",
            r"without overflow",
            r"loss scale",
        ),
        ("fp16-mask-overflow", "fp16-nan", "fully-padded-row-nan", "scores-not-scaled", "layernorm-eps-underflow"),
    ),
    Symptom(
        "A dtype error under autocast or after .half()",
        (
            r"must have the same dtype",
            r"expected scalar type",
            r"expected attn_mask dtype",
            r"expected m1 and m2 to have the same dtype",
        ),
        ("autocast-dtype-mismatch", "position-not-registered", "mask-dtype-fragile"),
    ),
    Symptom(
        "One sentence gets another result alone than in a batch, or with more padding",
        (
            r"(depends?|differs?|differen\w+|changes?|other)\b.*\b(batch|padding|padded|neighbou?rs)",
            r"padding.*(changes|matters|affects|influences)",
        ),
        (
            "padding-mask-ignored",
            "padding-mask-misaligned",
            "pooling-includes-padding",
            "mask-fill-too-weak",
            "padding-leaks-outside-attention",
            "batch-sequence-swapped",
            "cross-sample-leak",
            "batchnorm-in-encoder",
        ),
    ),
    Symptom(
        "The mask makes no difference",
        (r"mask\b.*\b(no (difference|effect)|ignored|does nothing|useless)", r"wrong mask.*nothing"),
        ("padding-mask-ignored", "padding-mask-skipped-in-some-layers", "mask-after-softmax"),
    ),
    Symptom(
        "It works with one batch size or length and fails with another",
        (
            r"size of tensor a \(\d+\) must match",
            r"expanded size of the tensor",
            r"shape of the [23]d attn_mask",
            r"expected key_padd\w+_mask",
            r"(last|only) batch.*(crash|fail|error)",
            r"batch (size )?(of )?(1|one)\b.*(crash|fail|error|works)",
        ),
        (
            "mask-rank-broadcast",
            "padding-mask-wrong-axis",
            "edge-shape-failure",
            "max-length-exceeded",
            "position-wrong-axis",
        ),
    ),
    Symptom(
        "An index error, or a device-side assert on the GPU",
        (
            r"index out of range in self",
            r"device-side assert",
            r"srcindex < srcselectdimsize",
            r"index \d+ is out of bounds",
        ),
        ("max-length-exceeded", "position-offset-by-padding", "vocabulary-index-risk"),
        "run it on the CPU once: there the message names the index",
    ),
    Symptom(
        "view refuses a tensor",
        (r"view size is not compatible", r"\.view\b.*error"),
        ("view-on-noncontiguous", "heads-merge-wrong"),
        "reshape silences it, also where a transpose is missing: look at the axes first",
    ),
    Symptom(
        "Shapes do not fit",
        (
            r"shape '\[.*\]' is invalid for input of size",
            r"mat1 and mat2 shapes cannot be multiplied",
            r"divisible by num_heads",
        ),
        ("heads-split-wrong", "mask-rank-broadcast", "edge-shape-failure", "forward-fails"),
    ),
    Symptom(
        "A complaint about the mask's dtype",
        (
            r"mismatched (src_)?key_padding_mask",
            r"only bool and floating types of key_padding_mask",
            r"masked_fill_? only supports boolean masks",
            r"with a bool tensor is not supported",
        ),
        ("mask-dtype-fragile", "combined-mask-wrong"),
    ),
    Symptom(
        "A warning about nested tensors, or the output is shorter in eval",
        (
            r"enable_nested_tensor is true",
            r"nested tensors is in prototype",
            r"(output|length).*(shorter|shrinks).*eval",
        ),
        ("output-shape-changed", "train-eval-mismatch", "batch-sequence-swapped"),
    ),
    Symptom(
        "Good in training, bad in evaluation",
        (r"(train\w*\b.*\b(good|fine|well|high)).*eval", r"eval\w*.*(bad|worse|constant|same)", r"model\.eval\(\)"),
        ("train-eval-mismatch", "dropout-active-in-eval", "batchnorm-in-encoder", "padding-mask-inverted"),
    ),
    Symptom(
        "Two runs of eval give different numbers",
        (
            r"not deterministic",
            r"non-?determinis",
            r"(two|same).*(runs?|times?).*differ",
            r"different (numbers|results) (each|every)",
        ),
        ("dropout-active-in-eval", "nondeterministic-eval", "stateful-forward"),
    ),
    Symptom(
        "The loss does not fall, or stops at a floor",
        (
            r"loss\b.*\b(not|n't|never|stops?|stuck|plateau|constant|floor)",
            r"(does|do)(n't| not) (learn|train|converge)",
            r"not converg",
        ),
        (
            "cannot-overfit-tiny-set",
            "gradient-blocked",
            "layers-unregistered",
            "double-softmax",
            "frozen-parameters",
            "padding-mask-inverted",
            "residual-missing",
        ),
        "learn a handful of samples first: if that fails, the code is wrong; if it works, look at data and schedule",
    ),
    Symptom(
        "The same output for every input",
        (
            r"same (output|prediction|score|vector|embedding)",
            r"(output|prediction)s?\b.*\b(constant|identical|alike)",
            r"predicts the mean",
        ),
        ("constant-output", "causal-mask-on-encoder", "padding-mask-inverted", "embedding-scale-missing"),
    ),
    Symptom(
        "The loss explodes, or is huge at the first step",
        (r"loss\b.*\b(explod\w*|huge|diverg\w*)", r"explod\w*\b.*\b(loss|grad)", r"more layers.*(collapse|fail|worse)"),
        ("init-scale", "gradient-exploding", "scores-not-scaled", "embedding-scale-wrong", "final-norm-missing"),
    ),
    Symptom(
        "DistributedDataParallel complains about unused parameters",
        (
            r"expected to have finished reduction",
            r"parameters that were not used in producing loss",
            r"find_unused_parameters",
        ),
        ("unused-parameters", "layer-unused", "gradient-blocked", "checkpoint-breaks-gradient"),
    ),
    Symptom(
        "Checkpointing warns, or the loss has no gradient",
        (r"none of the inputs have requires_grad", r"does not require grad and does not have a grad_fn"),
        ("checkpoint-breaks-gradient", "gradient-blocked"),
    ),
    Symptom(
        "The number of parameters does not change with the number of layers",
        (r"optimizer got an empty parameter list", r"parameter count", r"number of parameters.*(same|not change)"),
        ("layers-unregistered", "layers-shared"),
    ),
    Symptom(
        "Tensors are on different devices",
        (r"all tensors to be on the same device", r"is not on the expected device", r"works on (the )?cpu.*gpu"),
        ("position-not-registered", "layers-unregistered"),
    ),
    Symptom(
        "Backward complains about an in-place operation",
        (r"modified by an inplace operation", r"leaf variable that requires grad", r"used in an in-place operation"),
        ("inplace-breaks-backward", "input-mutated"),
    ),
    Symptom(
        "Results change after save and load",
        (
            r"(after|when) (save|saving|load|loading)",
            r"error\(s\) in loading state_dict",
            r"(missing|unexpected) key\(?s?\)?",
        ),
        ("weight-tying-broken", "layers-unregistered", "position-not-registered"),
    ),
    Symptom(
        "Word order plays no role",
        (r"(word )?order (does|plays|makes|has).*(no|not)", r"shuffl\w+.*(same|no difference)", r"bag of words"),
        ("position-missing", "position-wrong-axis", "rope-layout", "embedding-scale-wrong"),
    ),
    Symptom(
        "Too good to be true in training, useless in use",
        (r"too good to be true", r"sees? the future", r"future (tokens?|leak)", r"looks ahead"),
        ("causal-leak", "causal-mask-on-encoder"),
    ),
    Symptom(
        "Deep models do not train; gradients vanish",
        (r"vanish\w*", r"gradients? (are|is) (zero|tiny|too small)", r"first layers.*(not|never)"),
        ("gradient-vanishing", "residual-missing", "gradient-blocked"),
    ),
    Symptom(
        "Quality is mediocre, nothing crashes",
        (
            r"(poor|bad|mediocre|low) (quality|accuracy|performance|results)",
            r"trains? badly",
            r"slow(ly)? (start|learn)",
        ),
        (
            "heads-split-wrong",
            "heads-merge-wrong",
            "scores-not-scaled",
            "scores-wrong-scale",
            "ffn-linear",
            "embedding-scale-missing",
            "causal-mask-on-encoder",
        ),
    ),
)


def matching(text: str) -> list[Symptom]:
    """Symptoms that a description, an error message or a traceback shows, the best match first."""
    hits = [(sum(bool(re.search(p, text, re.I | re.S)) for p in symptom.patterns), symptom) for symptom in SYMPTOMS]
    return [symptom for count, symptom in sorted(hits, key=lambda hit: -hit[0]) if count]


def ranked_rules(symptoms: Iterable[Symptom]) -> list[str]:
    """The symptoms' rules, each once, the first symptom's first."""
    return list(dict.fromkeys(slug for symptom in symptoms for slug in symptom.rules))
