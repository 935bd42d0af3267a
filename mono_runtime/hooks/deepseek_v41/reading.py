"""Takes the facts of decisions out of vLLM's objects: its config, a decoder layer, a step's metadata.

Nothing is decided here, and nothing of vLLM's is kept. The attributes are those of vLLM 0.33.0:
``models/deepseek_v41/amd/model.py`` (decoder layer and MoE), ``models/deepseek_v41/attention.py``,
``v1/attention/backends/mla/sparse_swa.py`` (window metadata), ``forward_context.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from mono_runtime.errors import ArgumentMismatch
from mono_runtime.families.deepseek_v41 import TARGET_ROUTING, WINDOW
from mono_runtime.hooks.deepseek_v41.engine import Engine
from mono_runtime.hooks.deepseek_v41.facts import (
    AttentionFacts,
    DeploymentFacts,
    LayerFacts,
    Routing,
    StepFacts,
    WindowFacts,
)
from mono_runtime.hooks.deepseek_v41.inputs import RECORD

if TYPE_CHECKING:
    import torch


class SeenStep(NamedTuple):
    """A layer's part of a step: the facts, and vLLM's metadata that they were taken from."""

    facts: StepFacts
    window: Any = None
    compressed: Any = None


def read_deployment(layer: Any, vllm_config: Any, engine: Engine) -> DeploymentFacts:
    """What the server was started with, as ``layer`` and this rank have it."""
    parallel = vllm_config.parallel_config
    return DeploymentFacts(
        arch=engine.arch(),
        compute_units=engine.compute_units(),
        tp=engine.tp(),
        expert_parallel=bool(parallel.enable_expert_parallel),
        expert_balancing=bool(parallel.enable_eplb),
        data_parallel=int(parallel.data_parallel_size),
        a4w4=engine.a4w4(),
        moe_backend=_moe_backend(layer.ffn),
    )


def read_layer(layer: Any, vllm_config: Any, arch: str, engine: Engine) -> LayerFacts:
    """What ``layer`` is, with the class names and widths that ``engine`` has for ``arch``."""
    config, attn, ffn = vllm_config.model_config.hf_config, layer.attn, layer.ffn
    draft = attn.layer_id >= config.num_hidden_layers
    return LayerFacts(
        draft=draft,
        routing=_routing(ffn),
        attention=_attention(attn, arch, engine),
        sequence_parallel=bool(layer.use_sequence_parallel),
        fused_seam=bool(layer.fuse_seam_norm),
        trained_routing=_trained_routing(config) if draft else TARGET_ROUTING,
        swa_width=_draft_width(vllm_config, engine) if draft else WINDOW,
        engram=getattr(layer, "engram", None) is not None,
        first=attn.layer_id in (0, config.num_hidden_layers),
    )


def read_step(
    attn: Any,
    rows: int,
    tensors: Iterable[torch.Tensor | None],
    engine: Engine,
    *,
    entered: bool = True,
) -> SeenStep:
    """What this step is for the layer whose attention is ``attn``.

    Args:
        rows: rows of the step.
        tensors: what a launch reads as a whole; None where the engine gave none.
        entered: `StepFacts.entered`.
    """
    context = engine.forward_context()
    if context is None:
        return SeenStep(StepFacts(rows, None, metadata=False, entered=entered))
    metadata = context.attn_metadata
    by_layer = isinstance(metadata, dict)
    window = metadata.get(attn.swa_cache_layer.prefix) if by_layer else None
    prefix = attn.compressed_cache_prefix
    compressed = metadata.get(prefix) if by_layer and prefix is not None else None
    facts = StepFacts(
        rows=rows,
        graph_mode=context.cudagraph_runtime_mode.name,
        metadata=by_layer,
        window=None if window is None else _window(window),
        compressed=compressed is not None,
        contiguous=all(t is not None and t.is_contiguous() for t in tensors),
        entered=entered,
    )
    return SeenStep(facts, window, compressed)


def record_view(cache: torch.Tensor, rows: int) -> torch.Tensor:
    """An fp8_ds_mla cache as bytes [blocks, rows, 584]; a block's scales lie behind its rows' data.

    Args:
        cache: a cache of vLLM's [blocks, rows, ...]; a block may be larger than its records.
        rows: tokens of a block.

    Raises:
        ArgumentMismatch: a block is too small for so many records.
    """
    import torch

    # A view of the cache itself would keep that tensor, so whoever waits for its end would wait for ever.
    data = cache.data if cache.dtype == torch.uint8 else cache.data.view(torch.uint8)
    if data.stride(0) < rows * RECORD:
        raise ArgumentMismatch(
            f"a KV cache {list(data.shape)} with {data.stride(0)} bytes a block has no room for "
            f"{rows} records of {RECORD} bytes",
            fix="use vLLM's fp8_ds_mla cache, or start the server without --monokernel",
        )
    return torch.as_strided(data, (data.shape[0], rows, RECORD), (data.stride(0), RECORD, 1))


def _moe_backend(ffn: Any) -> str | None:
    experts = getattr(getattr(ffn, "experts", None), "routed_experts", None)
    if experts is None:
        return None
    backend = getattr(experts.quant_method, "mxfp4_backend", None)
    return backend.name if isinstance(backend, Enum) else str(backend)


def _routing(ffn: Any) -> Routing:
    return Routing(
        experts=ffn.n_routed_experts,
        topk=ffn.n_activated_experts,
        scale=ffn.routed_scaling_factor,
        limit=ffn.swiglu_limit,
        scoring=ffn.scoring_func,
        renormalized=bool(ffn.renormalize),
        by_token=ffn.gate.tid2eid is not None,
        shared=ffn.shared_experts is not None,
    )


def _trained_routing(config: Any) -> tuple[int, int]:
    # As vLLM builds a draft layer's MoE: without values of its own it has the backbone's.
    experts, topk = TARGET_ROUTING
    return (
        getattr(config, "dspark_n_routed_experts", 0) or experts,
        getattr(config, "dspark_num_experts_per_tok", 0) or topk,
    )


def _attention(attn: Any, arch: str, engine: Engine) -> AttentionFacts:
    indexer = attn.indexer
    return AttentionFacts(
        ratio=attn.compress_ratio,
        cache_dtype=attn.kv_cache_dtype,
        mxfp8=bool(attn.kv_mxfp8),
        compressor=attn.compressor is not None,
        indexer=None if indexer is None else type(indexer).__name__,
        indexer_fits=indexer is None or isinstance(indexer, engine.indexer_class(arch)),
    )


def _draft_width(vllm_config: Any, engine: Engine) -> int:
    speculative = vllm_config.speculative_config
    drafts = 0 if speculative is None else speculative.num_speculative_tokens
    return engine.draft_width(vllm_config.model_config.hf_config.sliding_window, drafts)


def _window(metadata: Any) -> WindowFacts:
    return WindowFacts(
        prefills=metadata.num_prefills,
        decodes=metadata.num_decodes,
        decode_tokens=metadata.num_decode_tokens,
        width=metadata.decode_swa_width,
        complete=metadata.decode_swa_indices is not None
        and metadata.decode_swa_lens is not None
        and metadata.token_to_req_indices is not None,
    )
