"""Taking a layer's weights from vLLM's decoder layer, by the attributes where 0.33.0 has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mono_runtime.hooks.deepseek_v41.weights import (
    AttentionWeights,
    LayerWeights,
    Layout,
    Tensor,
    WeightsMismatch,
    check,
)

if TYPE_CHECKING:
    import torch

# Dense MXFP8 modules by the argument of their weight: ``weight`` and ``weight_scale`` of each.
ATTENTION_LINEARS: Mapping[str, str] = {
    "wqkv": "attn.fused_wqa_wkv",
    "wqb": "attn.wq_b",
    "woa": "attn.wo_a",
    "wob": "attn.wo_b",
}
SHARED_LINEARS: Mapping[str, str] = {
    "sgu": "ffn.shared_experts.gate_up_proj",
    "sw2": "ffn.shared_experts.down_proj",
}
EXPERTS = "ffn.experts.routed_experts"
# The experts' tensors by argument; the two that end in ``_s`` are scales.
EXPERT_TENSORS: Mapping[str, str] = {
    "w13": "w13_weight",
    "w13_s": "w13_weight_scale",
    "w2": "w2_weight",
    "w2_s": "w2_weight_scale",
}
_ATTENTION_PLAIN: Mapping[str, str] = {
    "hc_fn": "hc_attn_fn",
    "hc_scale": "hc_attn_scale",
    "hc_base": "hc_attn_base",
    "attn_w": "attn_norm.weight",
    "qn_w": "attn.q_norm.weight",
    "kvn_w": "attn.kv_norm.weight",
    "cos_sin": "attn.rotary_emb.cos_sin_cache",
    "sink": "attn.attn_sink",
}
_FFN_PLAIN: Mapping[str, str] = {
    "hc_fn": "hc_ffn_fn",
    "hc_scale": "hc_ffn_scale",
    "hc_base": "hc_ffn_base",
    "ffn_w": "ffn_norm.weight",
    "gate_w": "ffn.gate.weight",
    "bias": "ffn.gate.e_score_correction_bias",
}


def take_weights(
    layer: object, layout: Layout, copies: Mapping[str, Tensor] | None = None
) -> LayerWeights:
    """The weights of vLLM's ``layer`` by the launches' argument names, checked.

    Args:
        layer: a decoder layer whose weights are loaded and processed.
        layout: whole layer or FFN alone, and what the tensors have to be.
        copies: gfx942's own (`reload.LayerCopies.tensors`); not looked at for gfx950.

    Raises:
        WeightsMismatch: attributes that the layer does not have, copies that were not made, or tensors
            that are not as the kernels read them; all of them at once.
    """
    missing: list[str] = []
    made = dict(copies or {}) if layout.gfx942 else None

    def get(path: str) -> Any:
        try:
            return at(layer, path)
        except AttributeError:
            missing.append(path)
            return None

    def dense(linears: Mapping[str, str]) -> dict[str, Any]:
        if made is not None:
            return own(name for linear in linears for name in (linear, f"{linear}_s"))
        return {
            **{name: get(f"{path}.weight") for name, path in linears.items()},
            **{f"{n}_s": as_bytes(get(f"{path}.weight_scale")) for n, path in linears.items()},
        }

    def experts() -> dict[str, Any]:
        if made is not None:
            return own(EXPERT_TENSORS)
        found = {name: get(f"{EXPERTS}.{path}") for name, path in EXPERT_TENSORS.items()}
        return {n: as_bytes(t) if n.endswith("_s") else t for n, t in found.items()}

    def own(names: Any) -> dict[str, Any]:
        found = {name: (made or {}).get(name) for name in names}
        missing.extend(f"gfx942's copy of {name}" for name, t in found.items() if t is None)
        return found

    number, ratio = get("attn.layer_id"), get("attn.compress_ratio")
    attention = None
    if layout.whole:
        plain = {name: get(path) for name, path in _ATTENTION_PLAIN.items()}
        attention = AttentionWeights(**plain, **dense(ATTENTION_LINEARS))
    ffn = {name: get(path) for name, path in _FFN_PLAIN.items()}
    ffn |= {**experts(), **dense(SHARED_LINEARS)}
    if missing:
        raise WeightsMismatch(
            f"layer {number} has not what the {layout.arch} kernels read: {', '.join(missing)}",
            fix="use a vLLM release that this version names as supported, and let the plug-in load before "
            "the model does",
        )
    weights = LayerWeights(layer=number, ratio=ratio, attention=attention, **ffn)
    check(weights, layout)
    return weights


def at(owner: object, path: str) -> Any:
    """The attribute at a dotted path; AttributeError when a part of it is not there, or is None."""
    found: Any = owner
    for name in path.split("."):
        found = getattr(found, name)
        if found is None:
            raise AttributeError(f"{path} is None")
    return found


def as_bytes(scale: torch.Tensor | None) -> torch.Tensor | None:
    """E8M0 codes as bytes, whatever type of one byte they have."""
    if scale is None:
        return None
    import torch

    narrow = scale.dtype != torch.uint8 and scale.element_size() == 1
    return scale.view(torch.uint8) if narrow else scale
