"""Cases of the FFN launch, and the half of K2 that is the same: seam, router, experts, all-reduce."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from mono_build.emulator.cases.case import (
    Address,
    Buffer,
    Call,
    Case,
    Memory,
    Part,
    Step,
    holding,
)
from mono_build.emulator.cases.compare import Comparison, equal
from mono_build.emulator.cases.deepseek_v41 import packing, regions
from mono_build.emulator.cases.deepseek_v41.build import Build, Target
from mono_build.emulator.cases.deepseek_v41.ffn_check import HalfCheck
from mono_build.emulator.cases.deepseek_v41.inputs import Activations, activations
from mono_build.emulator.cases.deepseek_v41.k1 import common_buffers
from mono_build.emulator.cases.deepseek_v41.rng import Random
from mono_build.emulator.cases.deepseek_v41.weights import LayerWeights
from mono_build.emulator.references.bounded import Bounded, exact
from mono_build.emulator.references.deepseek_v41 import attention, layer, router
from mono_build.emulator.references.deepseek_v41.geometry import HIDDEN, STREAMS

# Experts whose score is within this of a token's last pick are given to the kernel too: rounding may
# choose among them. The scores' errors are some 1e-3 at the end of a layer.
NEAR = 0.01
WEIGHTS = ("gate_w", "bias", "w13", "w13_s", "w2", "w2_s", "sgu", "sgu_s", "sw2", "sw2_s")


def case(target: Target, seed: int) -> Case:
    """The FFN launch on all ranks, from each rank's unreduced attention output."""
    random = Random(seed, "deepseek_v41")
    weights = LayerWeights(target.build, random)
    tokens, tp = target.build.tokens, target.build.tp
    given = activations(tokens, random.of("ffn seam"))
    parts = [partial_output(tokens, tp, random.of("part", rank)) for rank in range(tp)]
    needed = candidates(target, weights, given, [exact(p) for p in parts])
    buffers = []
    for rank in range(tp):
        buffers.append(
            {
                "part": holding(parts[rank]),
                "res_mid": holding(given.residual),
                "post_mid": holding(given.post),
                "comb_mid": holding(given.comb),
                "pre_mid": holding(given.pre),
                **common_buffers(scratch_of_ffn(target)),
                **half_buffers(target, rank, weights, needed),
            }
        )
    calls = tuple(_call(target, rank) for rank in range(tp))
    check = HalfCheck(target, scratch_of_ffn(target), weights)

    def checks(memory: Memory) -> list[Comparison]:
        pushed = [
            equal(
                f"attention's part of rank {source}, at rank {rank}",
                check.of(memory, rank).attention_parts()[source].view(torch.int16),
                parts[source].view(torch.int16),
            )
            for rank in range(tp)
            for source in range(tp)
        ]
        return pushed + check.run(memory, [exact(p) for p in parts])

    return Case(
        f"ffn {target.build}",
        "deepseek_v41",
        target.arch,
        seed,
        tuple(buffers),
        (Step(calls, checks),),
    )


def scratch_of_ffn(target: Target) -> Target:
    """Whose layout an FFN launch's scratch has: always that of the target's routing, also for a draft."""
    b = target.build
    return replace(target, build=Build(b.tokens, b.tp))


def partial_output(tokens: int, tp: int, random: Random) -> Tensor:
    """A rank's unreduced attention output [T, 5120] in bfloat16; the ranks' sum is of order one."""
    return random.normal(tokens, HIDDEN, std=tp**-0.5).bfloat16()


def candidates(
    target: Target, weights: LayerWeights, given: Activations, parts: list[Bounded]
) -> list[int]:
    """The experts that tokens pick, and those so near that a correct kernel might."""
    mine = weights.seam("ffn")
    state = layer.run_seam(
        attention.reduce_ranks(parts),
        given.known(),
        mine.mix,
        mine.norm,
    )
    scores = (
        router.scores(router.logits(weights.gate(), state.normed)).value + weights.bias().double()
    )
    last = scores.topk(target.build.topk, dim=1).values[:, -1:]
    return (scores >= last - NEAR).any(0).nonzero().flatten().tolist()


def half_buffers(
    target: Target, rank: int, weights: LayerWeights, needed: Iterable[int]
) -> dict[str, Buffer]:
    """The FFN half's weights and outputs on a rank, and its peer memory.

    Of the routed experts' tensors only the needed experts are written; no launch reads the others.
    """
    tokens, tp = target.build.tokens, target.build.tp
    mine, shared = weights.seam("ffn"), weights.shared(rank)
    gate_up = packing.dense(shared.gate_up, gfx942=target.gfx942)
    down = packing.dense(shared.down, gfx942=target.gfx942)
    parts: dict[str, list[Part]] = {name: [] for name in packing.expert_sizes(target)}
    for e in needed:
        for name, make in packing.expert(weights.expert(rank, e), target).items():
            parts[name].append(Part(e * packing.expert_sizes(target)[name], make))
    return {
        "hc_ffn_fn": holding(mine.mix.fn),
        "hc_ffn_scale": holding(mine.mix.scale),
        "hc_ffn_base": holding(mine.mix.base),
        "ffn_norm": holding(mine.norm),
        "gate_w": holding(weights.gate()),
        "bias": holding(weights.bias()),
        **{
            name: Buffer(target.build.experts * size, tuple(parts[name]))
            for name, size in packing.expert_sizes(target).items()
        },
        "sgu": holding(gate_up[0]),
        "sgu_s": holding(gate_up[1]),
        "sw2": holding(down[0]),
        "sw2_s": holding(down[1]),
        "res_out": Buffer(tokens * STREAMS * HIDDEN * 2, fill=0xFF),
        "post_out": Buffer(tokens * STREAMS * 4, fill=0xFF),
        "comb_out": Buffer(tokens * STREAMS * STREAMS * 4, fill=0xFF),
        "pre_out": Buffer(tokens * STREAMS * 4, fill=0xFF),
        "out": Buffer(tokens * HIDDEN * 2, fill=0xFF),
        "peer": Buffer(2 * regions.peer_half(tp), fill=target.stale, uncached=True),
        "peers": Buffer(8 * tp, table=tuple(Address("peer", rank=r) for r in range(tp))),
    }


def half_arguments(rank: int) -> dict[str, int | Address]:
    """The FFN half's arguments, alike in K2 and the FFN launch."""
    return {
        "res_in": Address("res_mid"),
        "post_in": Address("post_mid"),
        "comb_in": Address("comb_mid"),
        "pre_in": Address("pre_mid"),
        "hc_fn": Address("hc_ffn_fn"),
        "hc_scale": Address("hc_ffn_scale"),
        "hc_base": Address("hc_ffn_base"),
        "ffn_w": Address("ffn_norm"),
        **{name: Address(name) for name in ("res_out", "post_out", "comb_out", "pre_out")},
        **{name: Address(name) for name in WEIGHTS},
        "out": Address("out"),
        "scratch": Address("scratch"),
        "sym": Address("peer"),
        "peers": Address("peers"),
        "rank": rank,
        "epoch": Address("epoch"),
        "tl": 0,
    }


def _call(target: Target, rank: int) -> Call:
    return Call(rank, "ffn", target.build.key(), {**half_arguments(rank), "part": Address("part")})
