"""DeepSeek-V4.1's deployment. Sources, vLLM 0.33.0: ``models/deepseek_v41/amd/mono_decode.py`` (what a layer
runs), ``models/deepseek_v41/attention.py`` (layers), ``v1/worker/gpu/spec_decode/dspark`` (the draft)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mono_runtime.families.deepseek_v41 import (
    DRAFT_LAYERS,
    DRAFT_ROUTING,
    EXPERT_COLUMNS,
    EXPERT_SIZE,
    LAYERS,
    TARGET_ROUTING,
    WINDOW,
    DeepseekV41Keys,
    Layer,
    draft_layers_of,
    layers_of,
)
from mono_runtime.hooks.engine_config import EngineConfig
from mono_runtime.hooks.moe_oracle.backends import Backend
from mono_runtime.hooks.moe_oracle.sizes import round_up_sizes
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

ARCHITECTURES = ("DeepseekV41ForCausalLM",)
switched_off = monokernel_off
MODEL_TYPES = ("deepseek_v41",)
HIDDEN = 5120
# vLLM turns breakable graphs on for this model (``default_breakable_cudagraph_architectures``).
BREAKABLE = True
_SHAPE: Mapping[str, int | float | str | bool] = {
    "hidden_size": HIDDEN,
    "n_routed_experts": TARGET_ROUTING[0],
    "num_experts_per_tok": TARGET_ROUTING[1],
    "routed_scaling_factor": 1.5,
    "swiglu_limit": 10.0,
    "scoring_func": "sqrtsoftplus",
    "norm_topk_prob": True,
    "sliding_window": WINDOW,
}


def wanted(config: EngineConfig, arch: str) -> Wanted:
    """The deployment of a V4.1 server on ``arch``."""
    drafts = config.draft_method == "dspark"
    found = Wanted(DeepseekV41Keys(_layers(config), _draft_layers(config)))
    found.settings = {
        **graph_settings(config, breakable=BREAKABLE),
        "draft": drafts,
        "indexer_kv_dtype": "mxfp4" if config.indexer_dtype == "mxfp4" else "fp8",
    }
    found.reasons = [
        *parallel_reasons(config),
        *record_reasons(config),
        *unlike(config.model, _SHAPE),
        *_size_reasons(config),
        *(_draft_reasons(config) if drafts else ()),
    ]
    if arch == "gfx950":
        # gfx942's kernels read copies of their own, made before any backend converts the experts.
        found.reasons += expert_reasons(config)
    found.notes = [*graph_notes(config, breakable=BREAKABLE)]
    if arch != "gfx950" and config.indexer_dtype == "mxfp4":
        found.reasons.append("an MXFP4 index cache (attention_config.indexer_kv_dtype) needs CDNA4")
    if arch == "gfx950" and config.indexer_dtype != "mxfp4":
        found.notes.append(
            "the indexer's cache is not MXFP4 (attention_config.indexer_kv_dtype), so layers that select"
            " their own keys take the FFN launch alone"
        )
    return found


def _layers(config: EngineConfig) -> tuple[Layer, ...]:
    model = config.model
    count, ratios = model.integer("num_hidden_layers"), model.integers("compress_ratios")
    count = len(LAYERS) if count is None else count
    if ratios is None and count == len(LAYERS):
        return LAYERS
    # The list goes on with the draft's layers; a layer that it leaves out is a window alone.
    known = (ratios or ())[:count]
    return layers_of(
        [*known, *(0,) * (count - len(known))],
        index=model.integers("index_source_layer_ids") or (),
        keys=model.integers("kv_source_layer_ids") or (),
        engram=model.integers("engram_layer_ids") or (),
    )


def _draft_layers(config: EngineConfig) -> tuple[Layer, ...]:
    for model in (config.draft_model, config.model):
        count = model.integer("n_mtp_layers") or model.integer("num_nextn_predict_layers")
        if count:
            return draft_layers_of(count)
    return DRAFT_LAYERS


def _size_reasons(config: EngineConfig) -> Iterator[str]:
    size, tp = config.model.integer("moe_intermediate_size"), config.tensor_parallel
    if size is None or tp not in EXPERT_COLUMNS:
        return
    rank = -(-size // tp)
    columns = round_up_sizes(Backend.AITER, HIDDEN, rank)[1]
    if size != EXPERT_SIZE or columns != EXPERT_COLUMNS[tp]:
        yield (
            f"experts of {size} columns, {rank} on each of {tp} ranks, which are allocated as {columns}:"
            f" the kernels read {EXPERT_SIZE // tp} of {EXPERT_COLUMNS[tp]}"
        )


def _draft_reasons(config: EngineConfig) -> Iterator[str]:
    for model in (config.draft_model, config.model):
        experts = model.integer("dspark_n_routed_experts")
        topk = model.integer("dspark_num_experts_per_tok")
        if experts is None and topk is None:
            continue
        routing = (experts or TARGET_ROUTING[0], topk or TARGET_ROUTING[1])
        if routing != DRAFT_ROUTING:
            yield (
                f"the draft routes to {routing[1]} of {routing[0]} experts: the kernels are built for"
                f" {DRAFT_ROUTING[1]} of {DRAFT_ROUTING[0]}"
            )
        break
    if config.draft_model.flag("sample_from_anchor") is False:
        yield "the draft does not sample from its anchor, so its requests have a row more than is known here"
