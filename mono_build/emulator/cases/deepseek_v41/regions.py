"""Where the launches keep what they hand on: scratch, peer memory and the epoch buffer.

Facts of vLLM 0.33.0's `layer.scratch_layout` and the layouts it collects. A *pair* is a 32-bit value
and its tag; regions called plain hold values alone, announced by a flag pair elsewhere.
"""

from __future__ import annotations

from mono_build.emulator.cases.deepseek_v41.build import Target
from mono_build.emulator.references.deepseek_v41.geometry import (
    HEAD_DIM,
    HIDDEN,
    KEYS,
    MIXES,
    O_RANK,
    Q_RANK,
)

PAIR = 8
MAX_TOKENS = 48
QKV_ROWS = Q_RANK + HEAD_DIM
SLICES = HIDDEN // 32
ROUTER_PARTS = 4
ROUTE_COPIES = 8
BLOCKS = 256
# Words of the epoch buffer: the epoch and its marks in lines of 64 words, then two counters of 256 slots.
EPOCH_WORDS = -(-(4 + BLOCKS) // 64) * 64 + 2 * 256

Layout = dict[str, tuple[int, int]]


def scratch(target: Target) -> Layout:
    """Every region of a width's scratch: name to (byte offset, bytes)."""
    tokens = target.build.tokens
    layout: Layout = {}
    end = 0
    for group, align in (
        (_front(target), 256),
        (_seam(tokens), PAIR),
        (_back(target), 256),
        (_experts(target), PAIR),
        ({"normed": tokens * HIDDEN * 2, "xrdy_moe": tokens * PAIR}, 256),
        ({"krdy": tokens * PAIR}, 256),
    ):
        end = _up(end, 256)
        gap = 256 if "normed" in group else 0
        for name, size in group.items():
            end = _up(end, align)
            # K1's MXFP8 input and the experts' share a name; the later one is the place of both.
            layout[name] = (end, size)
            end += size + gap
            gap = 0
    return layout


def scratch_bytes(target: Target) -> int:
    """Bytes of a width's scratch."""
    return max(offset + size for offset, size in scratch(target).values())


def pushed_bytes(tokens: int, tp: int) -> int:
    """Bytes of one region of pushed partials: [source rank][token][hidden / 2] pairs of bfloat16."""
    return tp * tokens * HIDDEN // 2 * PAIR


def peer_half(tp: int) -> int:
    """Bytes of peer memory that an epoch uses; even and odd epochs alternate."""
    return 2 * pushed_bytes(MAX_TOKENS, tp)


def attention_offset(target: Target) -> int:
    """Where the attention's partials lie in peer memory."""
    return target.epoch % 2 * peer_half(target.build.tp)


def ffn_offset(target: Target) -> int:
    """Where the experts' partials lie: behind the attention's, as this width lays them out."""
    return attention_offset(target) + pushed_bytes(target.build.tokens, target.build.tp)


def max_slots(target: Target) -> int:
    """The most experts that a step can pick."""
    return min(target.build.tokens * target.build.topk, target.build.experts)


def _front(target: Target) -> dict[str, int]:
    tokens = target.build.tokens
    return {
        "x8": tokens * HIDDEN,
        "x8s": tokens * HIDDEN // 32 * 4,
        "xrdy": 2 * tokens * PAIR,
        "qkvp": 2 * tokens * QKV_ROWS * PAIR,
        "qx8": tokens * Q_RANK,
        "qx8s": tokens * Q_RANK // 32 * 4,
        "qrdy": tokens * PAIR,
    }


def _seam(tokens: int) -> dict[str, int]:
    return {"lin": tokens * HIDDEN // 2 * PAIR, "pmix": SLICES * tokens * (MIXES + 1) * PAIR}


def _back(target: Target) -> dict[str, int]:
    tokens, shard = target.build.tokens, target.build.shard
    chunks = -(-KEYS // target.chunk)
    return {
        "part": tokens * chunks * shard.heads * HEAD_DIM * 2,
        "pstat": tokens * chunks * shard.heads * 8,
        "srdy": tokens * chunks * PAIR,
        "xo": tokens * shard.heads * HEAD_DIM,
        "xos": tokens * shard.heads * HEAD_DIM // 32 * 4,
        "crdy": tokens * shard.heads // 8 * PAIR,
        "x8b": tokens * shard.groups * O_RANK,
        "x8bs": tokens * shard.groups * O_RANK // 32 * 4,
        "ardy": shard.groups * O_RANK // 32 * PAIR,
    }


def _experts(target: Target) -> dict[str, int]:
    b, shard = target.build, target.build.shard
    picks, slots = b.tokens * b.topk, max_slots(target)
    # The middle is laid out at the padded width on both architectures.
    inter = shard.inter_padded
    parts = -(-(shard.inter // 32) // b.ug_groups)
    units = slots if b.tokens <= target.tile else min(picks, slots + picks // target.tile)
    return {
        "x8r": b.tokens * HIDDEN // 4 // 2 * PAIR,
        "x8rs": b.tokens * HIDDEN // 32 // 2 * PAIR,
        "x8": b.tokens * HIDDEN // 4 // 2 * PAIR,
        "x8s": b.tokens * HIDDEN // 32 // 2 * PAIR,
        "x8rdy": b.tokens * PAIR,
        "logit": b.tokens * b.experts * ROUTER_PARTS * PAIR,
        "route": ROUTE_COPIES * b.tokens * 2 * b.topk * PAIR,
        "smid": b.tokens * shard.inter * PAIR,
        "smq": b.tokens * shard.inter // 4 * PAIR,
        "smc": b.tokens * shard.inter // 32 * PAIR,
        "mid": picks * inter // 4 * PAIR,
        "mids": picks * inter // 32 * PAIR,
        "ugf": units * parts * PAIR,
    }


def _up(value: int, align: int) -> int:
    return -(-value // align) * align
