"""Which deployments and layers DeepSeek-V4.1's launches serve, with every reason why not.

Pure functions over `facts`. The rules are those of vLLM 0.33.0's hook
(``vllm/models/deepseek_v41/amd/mono_decode.py``) and of the kernels' builds. One is stricter: TP 2 on
gfx942 is refused here, where vLLM takes the switch and then runs no layer with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from mono_runtime.errors import InvalidValue
from mono_runtime.families.deepseek_v41 import KEYS, TARGET_ROUTING, WINDOW
from mono_runtime.hooks.deepseek_v41.facts import (
    AttentionFacts,
    DeploymentFacts,
    LayerFacts,
    Routing,
)

# Workgroups of every launch, each with a compute unit of its own: they wait for each other, so on a
# device with fewer (a partition) none of them would ever end.
COMPUTE_UNITS = 256
# gfx950 reads the experts as this backend has laid them out. gfx942 has copies of its own, made
# before any backend converts them.
MOE_BACKEND = "AITER_MXFP4_BF16"
CACHE_DTYPE = "fp8_ds_mla"
RATIOS = (0, 1, 2)
_SCALE = 1.5
_LIMIT = 10.0
_SCORING = "sqrtsoftplus"


class DeploymentRefused(InvalidValue):
    """Mono kernels were asked for, and this deployment cannot run them."""


class Path(Enum):
    """What of a layer the launches run on a decode step."""

    OFF = "off"
    FFN = "ffn"  # from the attention's unreduced output on
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class LayerDecision:
    """How a layer is served.

    Attributes:
        path: what the launches run.
        reasons: why it is not the whole layer; empty when it is.
        draft: it is a whole layer of the draft, on the draft's own runner.
        experts: routed experts that the launches are built for.
        topk: experts a token takes.
        swa_width: index slots of a row's window that they are built for.
    """

    path: Path
    reasons: tuple[str, ...] = ()
    draft: bool = False
    experts: int = TARGET_ROUTING[0]
    topk: int = TARGET_ROUTING[1]
    swa_width: int = WINDOW


def deployment_refusals(deployment: DeploymentFacts) -> tuple[str, ...]:
    """Every reason why no layer of this deployment can run the launches."""
    return tuple(_deployment_refusals(deployment))


def check_deployment(deployment: DeploymentFacts) -> None:
    """Raise `DeploymentRefused` with every reason: an explicit switch that does nothing is a mistake."""
    reasons = deployment_refusals(deployment)
    if reasons:
        raise DeploymentRefused(
            f"--monokernel cannot run {KEYS.title} here:\n    " + "\n    ".join(reasons),
            where=f"a rank of TP {deployment.tp} on {deployment.arch}",
            fix="change what is named, or start the server without --monokernel",
        )


def layer_refusals(layer: LayerFacts, arch: str) -> tuple[str, ...]:
    """Every reason why the engine runs all of this layer."""
    return tuple(_layer_refusals(layer, arch))


def attention_refusals(layer: LayerFacts) -> tuple[str, ...]:
    """Every reason why the engine runs this layer's attention."""
    return tuple(_attention_refusals(layer.attention, layer.draft))


def decide_layer(layer: LayerFacts, arch: str) -> LayerDecision:
    """What of ``layer`` the launches run on ``arch``, in a deployment that is not refused."""
    refused = layer_refusals(layer, arch)
    if refused:
        return LayerDecision(Path.OFF, refused)
    experts, topk = layer.trained_routing
    if layer.draft and arch == "gfx942":
        # The draft's MoE takes bf16 activations in vLLM, the launch quantises them as the target's:
        # that moves what is accepted of a draft, never what the target answers.
        reason = f"a draft layer on gfx942 ({experts} experts, top {topk})"
        return LayerDecision(Path.FFN, (reason,), experts=experts, topk=topk)
    attention = attention_refusals(layer)
    if attention:
        return LayerDecision(Path.OFF if layer.draft else Path.FFN, attention)
    return LayerDecision(
        Path.WHOLE, draft=layer.draft, experts=experts, topk=topk, swa_width=layer.swa_width
    )


def _deployment_refusals(d: DeploymentFacts) -> Iterator[str]:
    sizes = KEYS.targets.get(d.arch)
    if sizes is None:
        yield f"the GPU is {d.arch}, the launches are for CDNA4 (gfx950) and CDNA3 (gfx942)"
        sizes = tuple(sorted({s for known in KEYS.targets.values() for s in known}))
    if d.tp not in sizes:
        listed = " or ".join(map(str, sizes))
        yield f"tensor-parallel size is {d.tp}, on {d.arch} it has to be {listed}"
    if d.compute_units < COMPUTE_UNITS:
        yield (
            f"the device has {d.compute_units} compute units, all {COMPUTE_UNITS} workgroups of a "
            "launch have to be resident at once (is the GPU partitioned?)"
        )
    if d.expert_parallel:
        yield "expert parallelism is on, each rank has to hold a share of every expert"
    if d.expert_balancing:
        yield "expert load balancing (EPLB) is on, the launches know no moved experts"
    if d.data_parallel > 1:
        yield f"data-parallel size is {d.data_parallel}, the launches reduce over one TP group"
    if d.a4w4:
        yield "VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4 is set, the launches quantise activations to 8 bits"
    if d.arch == "gfx950" and d.moe_backend not in (None, MOE_BACKEND):
        yield f"the MoE backend is {d.moe_backend}, the launches read {MOE_BACKEND}'s layout"


def _layer_refusals(layer: LayerFacts, arch: str) -> Iterator[str]:
    if layer.sequence_parallel:
        yield "its rows are spread over the ranks (sequence parallel)"
    # gfx942 has no fused seam: vLLM rounds to bf16 before the norm there, and the paths differ by that.
    if arch == "gfx950" and not layer.fused_seam:
        yield "AITER's fused mHC seam is not installed, so the engine's own steps round differently"
    yield from _routing_refusals(layer.routing, layer.trained_routing)


def _routing_refusals(routing: Routing, trained: tuple[int, int]) -> Iterator[str]:
    if not routing.shared:
        yield "it has no shared expert"
    if routing.by_token:
        yield "its experts follow from token ids (tid2eid)"
    if (routing.experts, routing.topk) != trained:
        yield (
            f"it routes to {routing.topk} of {routing.experts} experts, the launches to "
            f"{trained[1]} of {trained[0]}"
        )
    if routing.scale != _SCALE:
        yield f"routed weights are scaled by {routing.scale}, not {_SCALE}"
    if routing.limit != _LIMIT:
        yield f"its SwiGLU is clamped at {routing.limit}, not {_LIMIT}"
    if routing.scoring != _SCORING:
        yield f"its router scores by {routing.scoring}, not {_SCORING}"
    if not routing.renormalized:
        yield "routed weights are not renormalised"


def _attention_refusals(attention: AttentionFacts, draft: bool) -> Iterator[str]:
    if attention.compressor and attention.indexer is None:
        yield "a compressor without an indexer"
    if attention.indexer is not None and not attention.indexer_fits:
        yield f"an indexer of another kind ({attention.indexer})"
    if attention.ratio not in RATIOS:
        yield f"compress ratio {attention.ratio}"
    if attention.mxfp8:
        yield "MXFP8 records in the KV cache"
    if attention.cache_dtype != CACHE_DTYPE:
        yield f"a KV cache of {attention.cache_dtype}"
    if draft and (attention.ratio or attention.indexer is not None):
        yield "compressed keys in a draft layer"
