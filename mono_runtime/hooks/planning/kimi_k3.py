"""Kimi-K3's deployment. Sources, vLLM 0.33.0 under ``models/kimi_k3/amd/specialized_decode/runtime``:
``__init__.py`` (refusals, layers), ``layers.py`` (epsilons, gate)."""

from __future__ import annotations

from collections.abc import Iterator

from mono_runtime.families.fields import Setting
from mono_runtime.families.kimi_k3 import LAYERS, KimiK3Keys, Layer, layers_of
from mono_runtime.hooks.engine_config import EngineConfig
from mono_runtime.hooks.planning.wanted import Wanted, unlike

ARCHITECTURES = ("KimiK3ForConditionalGeneration", "KimiLinearForCausalLM")
MODEL_TYPES = ("kimi_k3", "kimi_linear")
SPECIALIZED = "latency_specialized"
_SHAPE: dict[str, int | float | str | bool] = {
    "hidden_size": 7168,
    "num_experts": 896,
    "linear_attn_config.num_heads": 96,
    "linear_attn_config.head_dim": 128,
    "linear_attn_config.short_conv_kernel_size": 4,
}


def switched_off(config: EngineConfig) -> str | None:
    """Why nobody asked for the specialized decode, or None."""
    if config.decode_backend == SPECIALIZED:
        return None
    return (
        f"the specialized decode is off (additional_config.decode_backend is {config.decode_backend},"
        f" {SPECIALIZED} turns it on)"
    )


def wanted(config: EngineConfig, arch: str) -> Wanted:
    """The deployment of a Kimi-K3 server on ``arch``."""
    found = Wanted(KimiK3Keys(_layers(config)))
    found.settings = _settings(config)
    found.reasons = [*_reasons(config), *unlike(config.model, _SHAPE)]
    return found


def _settings(config: EngineConfig) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    if config.drafts:
        found["speculative_tokens"] = config.drafts
    epsilon = config.model.number("rms_norm_eps")
    if epsilon is not None:
        found["rms_norm_eps"] = epsilon
    bound = config.model.number("linear_attn_config.gate_lower_bound")
    if bound is not None:
        found["gate_lower_bound"] = bound
    return found


def _layers(config: EngineConfig) -> tuple[Layer, ...]:
    model = config.model
    count, block = model.integer("num_hidden_layers"), model.integer("attn_res_block_size")
    kda = model.integers("linear_attn_config.kda_layers")
    if count is None or not block or kda is None:
        return LAYERS
    dense = model.integer("first_k_dense_replace")
    # The configuration numbers these layers from one.
    return layers_of(
        count,
        block,
        {i - 1 for i in kda},
        dense=0 if dense is None else dense,
        every=model.integer("moe_layer_freq") or 1,
    )


def _reasons(config: EngineConfig) -> Iterator[str]:
    checks = (
        (config.pipeline_parallel > 1, "pipeline parallelism"),
        (config.data_parallel > 1, "data parallelism"),
        (config.expert_parallel, "expert parallelism"),
        (config.expert_balancing, "EPLB"),
        (
            config.decode_context_parallel not in (1, config.tensor_parallel),
            "decode context parallelism other than 1 or TP",
        ),
        (config.prefill_context_parallel > 1, "prefill context parallelism"),
        (config.microbatching, "microbatching (DBO)"),
        (not config.drafts, "decoding without speculative tokens: only verifying steps are served"),
        (config.adaptive_verification, "adaptive verification"),
        (config.dynamic_drafts, "dynamic speculative decoding"),
        (not config.second_runner, "the V1 model runner"),
    )
    yield from (why for bad, why in checks if bad)
    stated = config.model.values
    if "linear_attn_config.kda_layers" in stated:
        if "linear_attn_config.gate_lower_bound" not in stated:
            yield "the model's gate has no lower bound (linear_attn_config.gate_lower_bound)"
        if "attn_res_block_size" not in stated:
            yield "the model has no AttnRes blocks (attn_res_block_size)"
