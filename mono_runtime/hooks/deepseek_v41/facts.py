"""What the decisions are taken from: plain values of a deployment, of a layer, of a step.

`reading` takes them out of vLLM's objects; `eligibility` and `step` decide from nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from mono_runtime.families.deepseek_v41 import TARGET_ROUTING, WINDOW


@dataclass(frozen=True, slots=True)
class DeploymentFacts:
    """What a server was started with, as one rank sees it.

    Attributes:
        arch: base name of the rank's GPU, such as ``gfx950``.
        compute_units: of the device as it is visible, so of a partition where there is one.
        tp: tensor-parallel size.
        expert_parallel: experts are distributed over the ranks.
        expert_balancing: experts move between ranks while serving (EPLB).
        data_parallel: data-parallel size.
        a4w4: AITER's MoE is switched to FP4 activations.
        moe_backend: name of the backend that prepared the routed experts; None where the layer
            has no routed experts.
    """

    arch: str
    compute_units: int
    tp: int
    expert_parallel: bool = False
    expert_balancing: bool = False
    data_parallel: int = 1
    a4w4: bool = False
    moe_backend: str | None = None


@dataclass(frozen=True, slots=True)
class Routing:
    """How a layer picks its experts.

    Attributes:
        experts: routed experts of the layer.
        topk: experts a token takes.
        scale: factor on the routed weights.
        limit: the SwiGLU's clamp.
        scoring: function on the router's logits.
        renormalized: the taken weights are divided by their sum.
        by_token: experts follow from the token id (a hash layer), not from the logits.
        shared: there is a shared expert.
    """

    experts: int
    topk: int
    scale: float = 1.5
    limit: float | None = 10.0
    scoring: str = "sqrtsoftplus"
    renormalized: bool = True
    by_token: bool = False
    shared: bool = True


@dataclass(frozen=True, slots=True)
class AttentionFacts:
    """A layer's attention, as far as the kernels depend on it.

    Attributes:
        ratio: compress ratio of the attention keys; 0 is a sliding window alone.
        cache_dtype: name of the KV cache's format.
        mxfp8: the cache holds MXFP8 records.
        compressor: the layer writes compressed keys.
        indexer: class name of the indexer, None where the layer has none.
        indexer_fits: it is the indexer that the kernels' normed input and query fit.
    """

    ratio: int = 0
    cache_dtype: str = "fp8_ds_mla"
    mxfp8: bool = False
    compressor: bool = False
    indexer: str | None = None
    indexer_fits: bool = True


@dataclass(frozen=True, slots=True)
class LayerFacts:
    """One decoder layer.

    Attributes:
        draft: it belongs to the DSpark draft, not to the backbone.
        sequence_parallel: its rows are spread over the ranks.
        fused_seam: vLLM's own path runs AITER's fused seam, which rounds as the kernels do.
        routing: what the layer has.
        trained_routing: experts and picks a token that the model's config gives this layer.
        swa_width: index slots of a decode row's window, as vLLM's metadata lays them out.
        engram: an Engram module may write into the residual before the layer.
        first: it is the model's first layer, which takes the embedding.
    """

    draft: bool
    routing: Routing
    attention: AttentionFacts
    sequence_parallel: bool = False
    fused_seam: bool = True
    trained_routing: tuple[int, int] = TARGET_ROUTING
    swa_width: int = WINDOW
    engram: bool = False
    first: bool = False


@dataclass(frozen=True, slots=True)
class WindowFacts:
    """The sliding window's metadata of a step.

    Attributes:
        prefills: requests that prefill.
        decodes: requests that decode.
        decode_tokens: rows of those, without the padding of a graph.
        width: index slots of a row.
        complete: index rows, their lengths and the rows' requests are all there.
    """

    prefills: int
    decodes: int
    decode_tokens: int
    width: int
    complete: bool


@dataclass(frozen=True, slots=True)
class StepFacts:
    """One layer's part of a step. Every value is one that all tensor-parallel ranks hold alike.

    Attributes:
        rows: rows of the step, padding included.
        graph_mode: name of the step's CUDA graph mode; None outside a forward pass.
        metadata: the step has attention metadata by layer (not a profile run, no micro-batches).
        window: this layer's window metadata, where there is any.
        compressed: metadata of the layer's compressed cache is there.
        contiguous: the tensors that the launch reads as a whole are contiguous.
        entered: the inputs are those that the layer takes; not so in the first layer of a later
            pipeline stage, which gets neither an embedding nor a residual.
    """

    rows: int
    graph_mode: str | None
    metadata: bool = True
    window: WindowFacts | None = None
    compressed: bool = False
    contiguous: bool = True
    entered: bool = True


@dataclass(frozen=True, slots=True)
class StepLimits:
    """What a layer's launches can take.

    Attributes:
        rows: most rows of a step.
        served: step widths that the store has on every rank.
        ratio: compress ratio of the layer; above 0 the compressed cache is read.
        swa_width: index slots of a window row that the kernels were built for; None where the
            engine runs the attention, so that nothing of the window is read.
    """

    rows: int
    served: frozenset[int]
    ratio: int = 0
    swa_width: int | None = WINDOW
