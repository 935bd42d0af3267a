"""The launches as compositions of the stages, from their inputs to their outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from mono_build.emulator.references.bounded import Bounded, stack
from mono_build.emulator.references.deepseek_v41 import attention, experts, front, router, seam
from mono_build.emulator.references.formats import Quantised, Rule, mxfp8


@dataclass(frozen=True, slots=True)
class Seam:
    """A seam's outputs: the streams after it, its mixes, and the next sublayer's input before and after the norm."""

    residual: Bounded
    mixes: seam.Mixes
    collapsed: Bounded
    normed: Bounded


@dataclass(frozen=True, slots=True)
class SeamInputs:
    """What a seam takes up: ``residual`` [T, 4, 5120], ``post`` [T, 4], ``comb`` [T, 4, 4], ``pre`` [T, 4]."""

    residual: Bounded
    post: Bounded
    comb: Bounded
    pre: Bounded


def run_seam(x: Bounded | None, given: SeamInputs, weights: seam.MixWeights, norm: Tensor) -> Seam:
    """A seam; without ``x`` the residual arrives settled and nothing is folded into it."""
    streams = given.residual
    if x is not None:
        streams = seam.fold(x, streams, given.post, given.comb)
    collapsed = seam.collapse(streams, given.pre)
    return Seam(streams, seam.mixes(streams, weights), collapsed, seam.norm(collapsed, norm))


@dataclass(frozen=True, slots=True)
class FrontWeights:
    """Dequantised weights of the attention's front on one rank, and its norms."""

    wqkv: Tensor
    q_norm: Tensor
    kv_norm: Tensor
    wq_b: Tensor


@dataclass(frozen=True, slots=True)
class Front:
    """The front's outputs: the normed low rank in bfloat16, the queries, the KV records."""

    rank: Bounded
    query: Bounded
    record: front.Record


def run_front(normed: Bounded, weights: FrontWeights, cos_sin: Tensor) -> Front:
    """From the seam's normed input [T, 5120] and each row's rotation [T, 64]."""
    halves = front.qkv_halves(weights.wqkv, mxfp8(normed, Rule.DIVIDE).values)
    q, kv = front.split_qkv(halves)
    rank, quantised = front.query_rank(q, weights.q_norm)
    return Front(
        rank,
        front.query(weights.wq_b, quantised.values, cos_sin),
        front.kv_record(kv, weights.kv_norm, cos_sin),
    )


@dataclass(frozen=True, slots=True)
class BackWeights:
    """Dequantised output projections of one rank, and the sink's logits of its heads."""

    wo_a: Tensor
    wo_b: Tensor
    sink: Tensor


def run_back(
    query: Bounded,
    keys: front.Keys,
    window: attention.Cache,
    compressed: attention.Cache | None,
    weights: BackWeights,
    cos_sin: Tensor,
    chunk: int,
    groups: int,
) -> Bounded:
    """A rank's unreduced attention output [T, 5120] in bfloat16 from its queries [T, H, 512]."""
    outputs = []
    for t in range(query.shape[0]):
        k, there = attention.key_values(keys, t, window, compressed)
        outputs.append(attention.combine(attention.chunks(query[t], k, there, chunk), weights.sink))
    rotated = attention.unrotate(stack(outputs, 0), cos_sin)
    low = attention.project_groups(weights.wo_a, rotated.values, groups)
    return attention.project(weights.wo_b, low.values)


@dataclass(frozen=True, slots=True)
class ExpertInputs:
    """A token's quantised input for the routed experts and for the shared one, and its route."""

    routed: Quantised
    shared: Quantised
    route: router.Route


def expert_inputs(normed: Bounded, route: router.Route) -> ExpertInputs:
    """From the seam's normed input [T, 5120] in bfloat16, and the route that its logits gave."""
    return ExpertInputs(mxfp8(normed, Rule.MULTIPLY), mxfp8(normed, Rule.DIVIDE), route)


def run_experts(
    inputs: ExpertInputs, expert: Callable[[int], experts.Expert], shared: experts.Expert
) -> Bounded:
    """A rank's unreduced output [T, 5120] in bfloat16; ``expert`` gives a routed expert's weights."""
    route = inputs.route
    tokens, picks = route.experts.shape
    parts: dict[tuple[int, int], Bounded] = {}
    for e in sorted(set(route.experts.flatten().tolist())):
        weights = expert(e)
        chosen = (route.experts == e).nonzero().tolist()
        rows = [t for t, _ in chosen]
        output = experts.down(
            weights, experts.routed_middle(weights, inputs.routed.values[rows]).values
        )
        for i, (t, k) in enumerate(chosen):
            parts[t, k] = experts.contribution(
                output[i], _broadcast(route.weights[t, k], output[i])
            )
    activation = experts.shared_activation(shared, inputs.shared.values)
    joint = experts.shared_output(shared, mxfp8(activation, Rule.DIVIDE).values)
    return stack(
        [experts.add_up([parts[t, k] for k in range(picks)], joint[t]) for t in range(tokens)], 0
    )


def _broadcast(x: Bounded, like: Bounded) -> Bounded:
    return x.map(lambda v: v.expand(like.shape))
