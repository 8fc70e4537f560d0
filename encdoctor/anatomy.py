"""What a report tells of a model that was understood, sound or not: figures, sites, and evidence for plots."""

from __future__ import annotations

from typing import Any

from encdoctor.evidence.attention import AttentionSites
from encdoctor.evidence.blocks import Blocks
from encdoctor.evidence.gradients import Gradients
from encdoctor.evidence.influence import InfluenceMatrix
from encdoctor.evidence.learning import TinyFit
from encdoctor.excerpts import relative
from encdoctor.intent import What
from encdoctor.lab.lab import Lab, NotMeasured

MATRIX_AT_MOST, POINTS_AT_MOST = 64, 200


def model_facts(lab: Lab) -> dict[str, Any]:
    """Counts that a reader knows the model by."""
    sites = _sites(lab)
    first = sites.sites[0] if sites.sites else None
    return {
        "class": type(lab.model).__name__,
        "parameters": sum(p.numel() for p in lab.model.parameters()),
        "layers": len({site.module for site in sites.sites}) if sites.sites else 0,
        "heads": first.heads if first else 0,
        "d_model": first.heads * first.head_dim if first else 0,
        "understood": sites.understood,
    }


def anatomy_of(lab: Lab) -> dict[str, Any]:
    """The attention sites in order, and why attention was not seen where it was not."""
    sites = _sites(lab)
    listed = [
        {
            "module": site.module,
            "heads": site.heads,
            "head_dim": site.head_dim,
            "scale": site.scale,
            "masks": [{"how": m.how, "covers": m.covers.value, "fill": m.fill} for m in site.masks],
            "inside_torch": site.foreign,
            "file": relative(site.place.file),
            "line": site.place.line,
        }
        for site in sites.sites
    ]
    return {"sites": listed, "why_not": sites.why, **_build(lab)}


def _build(lab: Lab) -> dict[str, Any]:
    """The sublayers in order, where norms stand, and whether the stream is normalised at the end."""
    blocks = lab.gathered(Blocks)
    if blocks is None or not blocks.understood:
        return {}
    return {
        "norms": blocks.norm_placement,
        "final_norm": blocks.final_norm,
        "sublayers": [
            {
                "kind": s.kind.value,
                "layer": s.layer,
                "residual": s.bypass,
                "maps": s.linears,
                "non_linearities": s.activations,
                "size": s.size_out,
            }
            for s in blocks.sublayers
        ],
    }


def evidence_of(lab: Lab) -> dict[str, Any]:
    """What the plots need, capped; only what was gathered."""
    found: dict[str, Any] = {}
    matrix = lab.gathered(InfluenceMatrix)
    if matrix is not None:
        values = matrix.padded if matrix.padded is not None else matrix.full
        if values is not None and max(values.shape) <= MATRIX_AT_MOST:
            found["influence"] = {
                "matrix": values.tolist(),
                "real": matrix.real if matrix.padded is not None else matrix.length,
                "unit": "change of the output, relative to the largest output",
                "expected": "causal" if lab.intent.says(What.CAUSAL) else "full",
            }
    gradients = lab.gathered(Gradients)
    if gradients is not None:
        points = gradients.trunk[:POINTS_AT_MOST]
        found["gradients"] = {
            "places": [f"{p.place.module or 'root'} {p.name}" for p in points],
            "rms": [p.gradient for p in points],
            "activations": [p.activation for p in points],
            "unit": "root mean square, 1 at the output",
        }
    fit = lab.gathered(TinyFit)
    if fit is not None and fit.measured:
        found["curve"] = {"loss": list(fit.losses), "goal": fit.goal, "chance": fit.chance, "unit": "nats"}
    return found


def _sites(lab: Lab) -> AttentionSites:
    try:
        return lab.get(AttentionSites)
    except NotMeasured as reason:
        return AttentionSites((), False, str(reason))
