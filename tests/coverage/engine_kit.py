"""Configurations of vLLM servers for tests, as the mappings that a JSON description is."""

from __future__ import annotations

import copy
from typing import Any

# The published models, as far as their configurations name what launches depend on.
V41_MODEL: dict[str, Any] = {
    "model_type": "deepseek_v41",
    "architectures": ["DeepseekV41ForCausalLM"],
    "hidden_size": 5120,
    "num_hidden_layers": 40,
    # One for each layer, then the draft's three.
    "compress_ratios": [0, 0, *[2] * 18, *[1] * 20, 0, 0, 0],
    "kv_source_layer_ids": [2, 20],
    "index_source_layer_ids": [2, 8, 14, 20, 24, 28, 32, 36],
    "engram_layer_ids": [1, 14],
    "n_routed_experts": 384,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 2304,
    "routed_scaling_factor": 1.5,
    "swiglu_limit": 10.0,
    "scoring_func": "sqrtsoftplus",
    "sliding_window": 128,
    "dspark_n_routed_experts": 128,
    "dspark_num_experts_per_tok": 3,
    "num_nextn_predict_layers": 3,
}
V4_MODEL: dict[str, Any] = {
    "model_type": "deepseek_v4",
    "architectures": ["DeepseekV4ForCausalLM"],
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "layer_types": ["hca" if i < 2 or i % 2 else "csa" for i in range(61)],
    "compress_rates": {"hca": 128, "csa": 4},
    "mlp_layer_types": ["hash_moe"] * 3 + ["moe"] * 58,
    "n_routed_experts": 384,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 3072,
}
K3_MODEL: dict[str, Any] = {
    "model_type": "kimi_k3",
    "architectures": ["KimiK3ForConditionalGeneration"],
    "text_config": {
        "hidden_size": 7168,
        "num_hidden_layers": 93,
        "num_experts": 896,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "attn_res_block_size": 12,
        "rms_norm_eps": 1e-5,
        "linear_attn_config": {
            "num_heads": 96,
            "head_dim": 128,
            "short_conv_kernel_size": 4,
            "gate_lower_bound": -5.0,
            # Numbered from one.
            "full_attn_layers": [*range(4, 93, 4), 93],
            "kda_layers": [i + 1 for i in range(93) if i % 4 != 3 and i != 92],
        },
    },
}
M3_MODEL: dict[str, Any] = {
    "model_type": "minimax_m3_vl",
    "architectures": ["MiniMaxM3SparseForConditionalGeneration"],
    "text_config": {
        "hidden_size": 6144,
        "num_hidden_layers": 60,
        "sparse_attention_config": {"sparse_attention_freq": [0] * 3 + [1] * 57},
    },
}


def v41(**sections: Any) -> dict[str, Any]:
    """A V4.1 server with five drafts, TP 4, and an MXFP4 index cache."""
    return merged(
        {
            "model_config": {"hf_config": V41_MODEL, "max_model_len": 131072},
            "kernel_config": {"monokernel": True},
            "parallel_config": {"tensor_parallel_size": 4},
            "attention_config": {"indexer_kv_dtype": "mxfp4"},
            "speculative_config": {"num_speculative_tokens": 5, "method": "ngram"},
            "compilation_config": {"cudagraph_mode": "FULL_AND_PIECEWISE"},
        },
        sections,
    )


def v4(**sections: Any) -> dict[str, Any]:
    """A V4-Pro server with six drafts, TP 8, and breakable graphs."""
    return merged(
        {
            "model_config": {"hf_config": V4_MODEL, "max_model_len": 131072},
            "kernel_config": {"monokernel": True},
            "parallel_config": {"tensor_parallel_size": 8},
            "speculative_config": {"num_speculative_tokens": 6, "method": "mtp"},
            "environment": {"VLLM_USE_BREAKABLE_CUDAGRAPH": "1"},
        },
        sections,
    )


def k3(**sections: Any) -> dict[str, Any]:
    """A Kimi-K3 server with seven drafts, TP 8."""
    return merged(
        {
            "model_config": {"hf_config": K3_MODEL},
            "additional_config": {"decode_backend": "latency_specialized"},
            "parallel_config": {"tensor_parallel_size": 8},
            "speculative_config": {"num_speculative_tokens": 7, "method": "dspark"},
        },
        sections,
    )


def m3(**sections: Any) -> dict[str, Any]:
    """A MiniMax-M3 server, TP 4."""
    return merged(
        {
            "model_config": {"hf_config": M3_MODEL},
            "kernel_config": {"monokernel": True, "moe_backend": "aiter"},
            "parallel_config": {"tensor_parallel_size": 4},
            "cache_config": {"cache_dtype": "fp8", "block_size": 128},
            "attention_config": {"indexer_kv_dtype": "fp8"},
        },
        sections,
    )


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """``base`` with the values of ``over`` in its sections; a name that is None is taken away."""
    result = copy.deepcopy(base)
    for name, value in over.items():
        if isinstance(value, dict) and isinstance(result.get(name), dict):
            result[name] = merged(result[name], value)
        elif value is None:
            result.pop(name, None)
        else:
            result[name] = value
    return result
