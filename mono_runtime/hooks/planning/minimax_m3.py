"""MiniMax-M3's deployment. Source, vLLM 0.33.0: ``models/minimax_m3/amd/specialized_decode/runtime/spec.py``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mono_runtime.families.minimax_m3 import MinimaxM3Keys
from mono_runtime.hooks.engine_config import EngineConfig
from mono_runtime.hooks.planning.wanted import Wanted, monokernel_off, unlike

ARCHITECTURES = ("MiniMaxM3SparseForCausalLM", "MiniMaxM3SparseForConditionalGeneration")
switched_off = monokernel_off
MODEL_TYPES = ("minimax_m3_vl", "minimax_m3_text")
FIRST_LAYER = 3
_BLOCK = 128
_SHAPE: Mapping[str, int | float | str | bool] = {
    "hidden_size": 6144,
    "intermediate_size": 3072,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "routed_scaling_factor": 2.0,
    "use_index_cache": False,
    "index_topk_freq": 1,
}


def wanted(config: EngineConfig, arch: str) -> Wanted:
    """The deployment of a MiniMax-M3 server on ``arch``."""
    found = Wanted(MinimaxM3Keys())
    found.reasons = [*_reasons(config), *_layer_reasons(config), *unlike(config.model, _SHAPE)]
    return found


def _reasons(config: EngineConfig) -> Iterator[str]:
    checks = (
        (config.pipeline_parallel > 1, "pipeline parallelism"),
        (config.data_parallel > 1, "data parallelism"),
        (config.decode_context_parallel > 1, "decode context parallelism"),
        (config.prefill_context_parallel > 1, "prefill context parallelism"),
        (config.microbatching, "microbatching (DBO)"),
        (config.expert_parallel, "expert parallelism"),
        (config.expert_balancing, "EPLB"),
        (
            config.cache_dtype not in ("fp8", "fp8_e4m3"),
            f"a KV cache of {config.cache_dtype}: cache_config.cache_dtype has to be fp8",
        ),
        (
            config.block_size != _BLOCK,
            f"KV cache blocks of {config.block_size or 'no stated size'}: cache_config.block_size has to"
            f" be {_BLOCK}",
        ),
        (
            config.indexer_dtype != "fp8",
            f"an index cache of {config.indexer_dtype}: attention_config.indexer_kv_dtype has to be fp8",
        ),
        (
            config.moe_backend != "aiter",
            f"MoE backend {config.moe_backend}: kernel_config.moe_backend has to be aiter",
        ),
        (
            bool(config.drafts) and config.draft_method != "eagle3",
            f"speculative method {config.draft_method}: EAGLE3 alone is served",
        ),
        (not config.second_runner, "the V1 model runner"),
    )
    yield from (why for bad, why in checks if bad)


def _layer_reasons(config: EngineConfig) -> Iterator[str]:
    frequencies = config.model.integers("sparse_attention_config.sparse_attention_freq")
    if frequencies is None:
        return
    count = config.model.integer("num_hidden_layers") or len(frequencies)
    sparse = [i for i, on in enumerate(frequencies[:count]) if on]
    if sparse != list(range(FIRST_LAYER, count)):
        yield f"sparse attention has to be on layers {FIRST_LAYER} through the last, and on no others"
