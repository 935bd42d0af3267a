"""What a family's planner finds in a server's configuration, and what several planners look at alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mono_runtime.families.base import FamilyKeys
from mono_runtime.families.fields import Setting
from mono_runtime.families.widths import FULL_AND_PIECEWISE, FULL_DECODE_ONLY, NONE, PIECEWISE
from mono_runtime.hooks.config_facts import FULL
from mono_runtime.hooks.engine_config import BREAKABLE_GRAPHS, FP4_ACTIVATIONS, EngineConfig
from mono_runtime.hooks.model_facts import ModelFacts

# Values of ``cache_config.cache_dtype`` that vLLM resolves to the records DeepSeek's kernels read.
_RECORDS = ("auto", "fp8", "fp8_ds_mla")


@dataclass(slots=True)
class Wanted:
    """A deployment as a planner reads it from a configuration.

    Attributes:
        family: with the layers of this checkpoint.
        settings: the family's deployment fields that the configuration states.
        reasons: why the family's launches cannot run in this server.
        notes: what an operator should know of a deployment that is served.
    """

    family: FamilyKeys
    settings: dict[str, Setting] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def monokernel_off(config: EngineConfig) -> str | None:
    """Why nobody asked for mono kernels, or None."""
    if config.monokernel:
        return None
    return "mono kernels are off (kernel_config.monokernel; --monokernel turns them on)"


def graphs_in_use(config: EngineConfig, *, breakable: bool) -> str:
    """The graph mode that the model runner ends up with, for a model that torch does not compile.

    Piecewise graphs of such a model are breakable ones or none. The attention backends of the mono
    kernels' models capture uniform batches alone, so full graphs serve decode steps only. Sources, vLLM
    0.33.0: ``initialize_kv_cache`` (v1/worker/gpu/model_runner.py) and
    ``CompilationConfig.resolve_cudagraph_mode_and_sizes``.

    Args:
        breakable: whether breakable graphs are on, unless the environment says.
    """
    if config.enforce_eager or config.capture_sizes == ():
        return NONE
    graphs = FULL_DECODE_ONLY if config.graphs == FULL else config.graphs
    if not config.second_runner or config.switched_on(BREAKABLE_GRAPHS, breakable):
        return graphs
    return {FULL_AND_PIECEWISE: FULL_DECODE_ONLY, PIECEWISE: NONE}.get(graphs, graphs)


def graph_settings(config: EngineConfig, *, breakable: bool) -> dict[str, Setting]:
    """The settings of `mono_runtime.families.widths.graph_fields`."""
    found: dict[str, Setting] = {
        "speculative_tokens": config.drafts,
        "performance_mode": config.performance_mode,
        "adaptive_verification": config.adaptive_verification,
        "cudagraph_mode": graphs_in_use(config, breakable=breakable),
        "eager": config.dynamic_drafts,
    }
    if config.max_num_seqs is not None:
        found["max_num_seqs"] = config.max_num_seqs
    if config.max_num_batched_tokens is not None:
        found["max_num_batched_tokens"] = config.max_num_batched_tokens
    if config.capture_sizes:
        found["capture_sizes"] = config.capture_sizes
    elif config.max_capture_size:
        found["max_capture_size"] = config.max_capture_size
    return found


def graph_notes(config: EngineConfig, *, breakable: bool) -> Iterator[str]:
    """What follows from the graphs for the steps that run the launches."""
    graphs = graphs_in_use(config, breakable=breakable)
    if graphs == NONE:
        yield "there are no graphs, so a decode step can have any width"
    elif config.dynamic_drafts:
        yield (
            "requests verify a number of drafts that changes while the server runs"
            " (num_speculative_tokens_per_batch_size), so a decode step can have any width"
        )
    elif graphs == FULL_DECODE_ONLY and config.drafts:
        yield (
            "steps in which a request verifies fewer drafts than others find no graph and can have any"
            f" width; with piecewise graphs ({BREAKABLE_GRAPHS}=1, cudagraph_mode FULL_AND_PIECEWISE) they"
            " run the engine's own path"
        )
    elif graphs == PIECEWISE:
        yield (
            "there are piecewise graphs alone, which run the engine's own path: only steps above the"
            " largest graph run the launches"
        )


def parallel_reasons(config: EngineConfig) -> Iterator[str]:
    """How the ranks share the model in a way that DeepSeek's kernels cannot follow."""
    if config.expert_parallel or config.expert_balancing:
        yield "experts are distributed over the ranks (expert parallelism): each rank needs all of them"
    if config.data_parallel > 1:
        yield f"data parallelism ({config.data_parallel}): the kernels know tensor parallelism alone"
    if config.switched_on(FP4_ACTIVATIONS, False):
        yield f"{FP4_ACTIVATIONS} is set: the kernels multiply FP8 activations with FP4 experts"


def expert_reasons(config: EngineConfig) -> Iterator[str]:
    """An MoE backend that was asked for and that lays experts out in another way than AITER's MXFP4 kernels."""
    if config.moe_backend not in ("auto", "aiter"):
        yield (
            f"MoE backend {config.moe_backend} (kernel_config.moe_backend): the kernels read experts as"
            " AITER's MXFP4 kernels do"
        )


def record_reasons(config: EngineConfig) -> Iterator[str]:
    """The KV cache's format, where DeepSeek's kernels cannot read it."""
    if config.cache_dtype not in _RECORDS:
        yield (
            f"a KV cache of {config.cache_dtype} (cache_config.cache_dtype): the kernels read"
            " fp8_ds_mla records"
        )


def unlike(model: ModelFacts, expected: Mapping[str, int | float | str | bool]) -> Iterator[str]:
    """Where a model configuration states another value than the kernels are written for."""
    for name, value in expected.items():
        if isinstance(value, bool):
            found: object = model.flag(name)
        elif isinstance(value, int):
            found = model.integer(name)
        elif isinstance(value, float):
            found = model.number(name)
        else:
            found = model.text(name)
        if found is not None and found != value:
            yield f"the model has {name} {found}: the kernels are written for {value}"
