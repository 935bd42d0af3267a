"""A vLLM worker and its decoder layer, as far as the V4.1 hook reads them, over an emulated rank's memory."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from types import SimpleNamespace as Object
from typing import Any

import torch
from v41_emulated import EmulatedRank

from mono_runtime.hooks.deepseek_v41.inputs import LayerStep
from mono_runtime.hooks.deepseek_v41.runner import Kind, MonoRunner
from mono_runtime.hooks.deepseek_v41.weights import LayerWeights

# Two layers of ratio 2 that select their own keys: the first enters the model, the second folds.
MODEL = {
    "model_type": "deepseek_v41",
    "architectures": ["DeepseekV41ForCausalLM"],
    "hidden_size": 5120,
    "num_hidden_layers": 2,
    "compress_ratios": [2, 2],
    "kv_source_layer_ids": [0],
    "index_source_layer_ids": [0, 1],
    "engram_layer_ids": [],
    "n_routed_experts": 384,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 2304,
    "routed_scaling_factor": 1.5,
    "swiglu_limit": 10.0,
    "scoring_func": "sqrtsoftplus",
    "norm_topk_prob": True,
    "sliding_window": 128,
}
# Where vLLM 0.33.0's decoder layer has the weights, by the launches' argument names.
ATTENTION = {
    "hc_fn": "hc_attn_fn",
    "hc_scale": "hc_attn_scale",
    "hc_base": "hc_attn_base",
    "attn_w": "attn_norm.weight",
    "wqkv": "attn.fused_wqa_wkv.weight",
    "wqkv_s": "attn.fused_wqa_wkv.weight_scale",
    "qn_w": "attn.q_norm.weight",
    "kvn_w": "attn.kv_norm.weight",
    "wqb": "attn.wq_b.weight",
    "wqb_s": "attn.wq_b.weight_scale",
    "cos_sin": "attn.rotary_emb.cos_sin_cache",
    "sink": "attn.attn_sink",
    "woa": "attn.wo_a.weight",
    "woa_s": "attn.wo_a.weight_scale",
    "wob": "attn.wo_b.weight",
    "wob_s": "attn.wo_b.weight_scale",
}
FFN = {
    "hc_fn": "hc_ffn_fn",
    "hc_scale": "hc_ffn_scale",
    "hc_base": "hc_ffn_base",
    "ffn_w": "ffn_norm.weight",
    "gate_w": "ffn.gate.weight",
    "bias": "ffn.gate.e_score_correction_bias",
    "w13": "ffn.experts.routed_experts.w13_weight",
    "w13_s": "ffn.experts.routed_experts.w13_weight_scale",
    "w2": "ffn.experts.routed_experts.w2_weight",
    "w2_s": "ffn.experts.routed_experts.w2_weight_scale",
    "sgu": "ffn.shared_experts.gate_up_proj.weight",
    "sgu_s": "ffn.shared_experts.gate_up_proj.weight_scale",
    "sw2": "ffn.shared_experts.down_proj.weight",
    "sw2_s": "ffn.shared_experts.down_proj.weight_scale",
}


class Mode(Enum):
    """vLLM's CUDAGraphMode, as far as steps have one."""

    NONE = 0


class Backend(Enum):
    """vLLM's Mxfp4MoeBackend, as far as the kernels take one."""

    AITER_MXFP4_BF16 = "AITER_MXFP4_BF16"


class Indexer:
    """vLLM's indexer. ``choose(normed, qr)`` stands for its scores: it writes the selection.

    Its projections give their inputs, so that what K1 left arrives in one place.
    """

    def __init__(self, choose: Callable[[torch.Tensor, torch.Tensor], None]) -> None:
        self._choose = choose

    def weights_proj(self, normed: torch.Tensor) -> tuple[torch.Tensor, None]:
        return normed, None

    def forward_q(self, qr: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, None, Any]:
        return qr, None, rest[1]

    def indexer_op(self, normed: torch.Tensor, qr: torch.Tensor, _: None, heads: Any) -> None:
        assert heads is normed
        self._choose(normed, qr)


class EmulatedEngine:
    """`mono_runtime.hooks.deepseek_v41.engine.Engine` of an emulated rank."""

    def __init__(self, rank: EmulatedRank, arch: str) -> None:
        self._rank, self._arch = rank, arch
        self.context: Any = None

    def arch(self) -> str:
        return self._arch

    def compute_units(self) -> int:
        return 256

    def tp(self) -> int:
        return self._rank.group.size

    def rank(self) -> int:
        return self._rank.number

    def group(self) -> object:
        return self._rank.group

    def device(self) -> int:
        return self._rank.number

    def a4w4(self) -> bool:
        return False

    def indexer_class(self, arch: str) -> type:
        return Indexer

    def draft_width(self, window: int, drafts: int) -> int:
        return window

    def forward_context(self) -> Any:
        return self.context

    def capturing(self) -> bool:
        return False

    def record_switch(self, vllm_config: Any) -> None:
        pass

    def build_topk(self) -> None:
        pass


class EmulatedMaker:
    """`mono_runtime.hooks.deepseek_v41.factory.RunnerMaker` of an emulated rank."""

    def __init__(self, rank: EmulatedRank, *, key_list: bool) -> None:
        self._rank, self._key_list = rank, key_list

    def make(self, prepared: Any, engine: Any, kind: Kind) -> MonoRunner:
        return self._rank.make_runner(prepared, kind=kind, key_list=self._key_list)

    def close(self) -> None:
        pass


def vllm_config(tp: int, drafts: int) -> Any:
    """A server of `MODEL` with one request at a time."""
    return Object(
        kernel_config=Object(monokernel=True, moe_backend="auto"),
        parallel_config=Object(
            tensor_parallel_size=tp,
            pipeline_parallel_size=1,
            data_parallel_size=1,
            enable_expert_parallel=False,
            enable_eplb=False,
        ),
        model_config=Object(
            hf_config=Object(**MODEL), architectures=MODEL["architectures"], max_model_len=4096
        ),
        scheduler_config=Object(max_num_seqs=1, max_num_batched_tokens=4096),
        attention_config=Object(indexer_kv_dtype="mxfp4"),
        speculative_config=Object(num_speculative_tokens=drafts, method="ngram"),
        compilation_config=Object(cudagraph_mode="FULL_AND_PIECEWISE", cudagraph_capture_sizes=[3]),
    )


def decoder_layer(
    weights: LayerWeights,
    step: LayerStep,
    choose: Callable[[torch.Tensor, torch.Tensor], None],
    **attention: Any,
) -> Any:
    """vLLM's decoder layer 1 of `MODEL` with these weights and caches."""
    prefix = "model.layers.1.attn"
    processed = Object(process_weights_after_loading=lambda module: None)
    layer = Object(
        attn=Object(
            layer_id=1,
            compress_ratio=weights.ratio,
            kv_cache_dtype="fp8_ds_mla",
            kv_mxfp8=False,
            compressor=None,
            indexer=Indexer(choose),
            swa_cache_layer=Object(prefix=f"{prefix}.swa_cache", kv_cache=step.swa_cache),
            compressed_cache_prefix=prefix,
            _compressed_kv_cache=lambda: step.comp_cache,
            topk_indices_buffer=step.topk_indices,
            indexer_rotary_emb=Object(),
        ),
        ffn=Object(
            n_routed_experts=384,
            n_activated_experts=6,
            routed_scaling_factor=1.5,
            swiglu_limit=10.0,
            scoring_func="sqrtsoftplus",
            renormalize=True,
            gate=Object(tid2eid=None),
        ),
        use_sequence_parallel=False,
        fuse_seam_norm=True,
        engram=None,
        hc_mult=4,
    )
    method = Object(mxfp4_backend=Backend.AITER_MXFP4_BF16, **vars(processed))
    for name, path in FFN.items():
        _put(layer, path, getattr(weights, name), method)
    if weights.attention is not None:
        for name, path in ATTENTION.items():
            _put(layer, path, getattr(weights.attention, name), processed)
    for name, value in attention.items():
        setattr(layer.attn, name, value)
    return layer


def forward_context(layer: Any, step: LayerStep, ratio: int) -> Any:
    """A forward pass of two requests' decode rows, the last row padding."""
    rows = len(step.positions)
    window = Object(
        num_prefills=0,
        num_decodes=2,
        num_decode_tokens=rows - 1,
        decode_swa_width=128,
        decode_swa_indices=step.swa_indices,
        decode_swa_lens=step.swa_lens,
        token_to_req_indices=step.token_to_req,
        slot_mapping=step.slot_mapping,
        block_size=step.swa_cache.shape[1],
    )
    metadata = {layer.attn.swa_cache_layer.prefix: window}
    if step.comp_cache is not None:
        metadata[layer.attn.compressed_cache_prefix] = Object(
            block_size=step.comp_cache.shape[1] * ratio, block_table=step.comp_block_table
        )
    return Object(attn_metadata=metadata, cudagraph_runtime_mode=Mode.NONE)


def _put(layer: Any, path: str, value: Any, method: Any) -> None:
    *names, last = path.split(".")
    owner = layer
    for name in names:
        if not hasattr(owner, name):
            setattr(owner, name, Object(quant_method=method))
        owner = getattr(owner, name)
    setattr(owner, last, value)
