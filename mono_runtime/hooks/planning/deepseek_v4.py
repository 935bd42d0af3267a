"""DeepSeek-V4-Pro's deployment. Sources, vLLM 0.33.0: ``models/deepseek_v4/amd/mono_decode.py`` (what a layer
runs), ``models/deepseek_v4/attention.py`` and ``amd/model.py`` (layers)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mono_runtime.families.deepseek_v4 import CSA, HCA, LAYERS, DeepseekV4Keys, layers_of
from mono_runtime.hooks.engine_config import FP8_PADDING, EngineConfig
from mono_runtime.hooks.planning.wanted import (
    Wanted,
    expert_reasons,
    graph_notes,
    graph_settings,
    monokernel_off,
    parallel_reasons,
    record_reasons,
    unlike,
)

ARCHITECTURES = ("DeepseekV4ForCausalLM", "DeepseekV4ForConditionalGeneration")
switched_off = monokernel_off
MODEL_TYPES = ("deepseek_v4",)
# vLLM leaves breakable graphs off for this model on ROCm.
BREAKABLE = False
# Layers of this kind in ``mlp_layer_types`` take their experts from the token ids.
_HASHED = "hash_moe"
_SHAPE: Mapping[str, int | float | str | bool] = {
    "hidden_size": 7168,
    "moe_intermediate_size": 3072,
    "n_routed_experts": 384,
    "num_experts_per_tok": 6,
    "routed_scaling_factor": 2.5,
    "swiglu_limit": 10.0,
    "scoring_func": "sqrtsoftplus",
    "norm_topk_prob": True,
    "sliding_window": 128,
    # A vision model has a second bias of its experts.
    "vision_n_layers": 0,
}


def wanted(config: EngineConfig, arch: str) -> Wanted:
    """The deployment of a V4-Pro server on ``arch``."""
    ratios, hashed = _ratios(config), config.model.texts("mlp_layer_types")
    layers = LAYERS
    if ratios is not None or hashed is not None:
        known = [layer.ratio for layer in LAYERS] if ratios is None else ratios
        count = 3 if hashed is None else hashed.count(_HASHED)
        layers = layers_of(known, hashed=count)
    found = Wanted(DeepseekV4Keys(layers))
    found.settings = graph_settings(config, breakable=BREAKABLE)
    if config.max_model_len is not None:
        found.settings["max_model_len"] = config.max_model_len
    found.reasons = [
        *parallel_reasons(config),
        *record_reasons(config),
        *expert_reasons(config),
        *unlike(config.model, _SHAPE),
    ]
    if not config.switched_on(FP8_PADDING, True):
        found.reasons.append(f"{FP8_PADDING} is off: the kernels read padded rows of FP8 weights")
    if not layers:
        found.reasons.append(f"no layer has a compress ratio of {CSA} or {HCA}")
    found.notes = [*graph_notes(config, breakable=BREAKABLE)]
    return found


def _ratios(config: EngineConfig) -> Sequence[int] | None:
    """The compress ratio of each layer of the backbone, or None when the configuration does not say."""
    model = config.model
    kinds, rates = model.texts("layer_types"), model.counts("compress_rates")
    if kinds is None or rates is None:
        return None
    count = model.integer("num_hidden_layers") or len(kinds)
    return [rates.get(kind, 0) for kind in kinds[:count]]
