"""The attention's front: from the normed input to the rotated query and the KV record."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mono_build.emulator.references.bounded import (
    Bounded,
    bf16,
    cat,
    constant,
    exact,
    linear,
    monotone,
    split,
    square,
    stack,
    total,
)
from mono_build.emulator.references.deepseek_v41.geometry import (
    COMPRESSED,
    EPS,
    HEAD_DIM,
    KEYS,
    NOPE_DIM,
    Q_RANK,
    ROPE_DIM,
    TOPK_KEYS,
)
from mono_build.emulator.references.formats import Quantised, Rule, mxfp8, record_groups

# Depth of the norms' sums in the kernels, at most: 8 squares in a thread, 64 lanes and 4 waves in pairs.
NORM_DEPTH = 16


def wave_depth(k: int, waves: int = 8) -> int:
    """Depth of a matrix-vector sum over ``k`` that ``waves`` waves share by steps of 128 and then add up."""
    return -(-k // (128 * waves)) * 128 + waves


@dataclass(frozen=True, slots=True)
class Record:
    """A token's entry of the KV cache: 448 values in E4M3 groups of 64, and 64 rotated ones in bfloat16."""

    nope: Quantised
    rope: Bounded


def qkv_halves(weight: Tensor, x: Bounded) -> Bounded:
    """``x`` [T, 5120] by ``weight`` [1792, 5120] (both dequantised), each half of K: [2, T, 1792] float32.

    Tolerance: `linear` over 2560, eight waves wide.
    """
    half = weight.shape[1] // 2
    depth = wave_depth(half)
    return stack(
        [
            linear(weight[:, :half], x[:, :half], depth),
            linear(weight[:, half:], x[:, half:], depth),
        ],
        0,
    )


def split_qkv(halves: Bounded) -> tuple[Bounded, Bounded]:
    """The halves' float32 sum in bfloat16: the query's low rank [T, 1280] and the KV row [T, 512]."""
    row = bf16(halves[0] + halves[1])
    return row[:, :Q_RANK], row[:, Q_RANK:]


def rms_norm(x: Bounded, weight: Tensor) -> Bounded:
    """``bf16((x r) w)`` with ``r = rsqrt(sum / n + 1e-20)``, the mean divided in float32.

    Tolerance: as `seam.norm`.
    """
    squares = square(x)
    summed = total(squares, -1, NORM_DEPTH)
    mean = summed / constant(x.shape[-1], summed) + constant(EPS, summed)
    return bf16((x * monotone(mean, torch.rsqrt, 1)[:, None]) * exact(weight.expand(x.shape)))


def query_rank(q: Bounded, weight: Tensor) -> tuple[Bounded, Quantised]:
    """The normed low-rank query [T, 1280] in bfloat16, and its MXFP8 form."""
    normed = rms_norm(q, weight)
    return normed, mxfp8(normed, Rule.DIVIDE)


def rotate(x: Bounded, cos_sin: Tensor, *, inverse: bool = False) -> Bounded:
    """Rotary embedding of neighbouring pairs: ``x`` [T, ..., 64] by rows [T, 64] (32 cosines, 32 sines).

    ``(a cos - b sin, a sin + b cos)``, or the inverse rotation; products and the sum are rounded to
    float32 one by one, so the result is exact given exact inputs.
    """
    shape = (x.shape[0], *(1,) * (len(x.shape) - 2), ROPE_DIM // 2)
    cos = exact(cos_sin[:, : ROPE_DIM // 2].reshape(shape))
    sin = exact(cos_sin[:, ROPE_DIM // 2 :].reshape(shape))
    a, b = x[..., 0::2], x[..., 1::2]
    if inverse:
        pairs = [a * cos + b * sin, b * cos - a * sin]
    else:
        pairs = [a * cos - b * sin, a * sin + b * cos]
    return stack(pairs, -1).map(lambda v: v.flatten(-2))


def kv_record(kv: Bounded, weight: Tensor, cos_sin: Tensor) -> Record:
    """The KV row [T, 512]: normed, its last 64 rotated, bfloat16; then groups of 64 of the first 448 in E4M3."""
    normed = rms_norm(kv, weight)
    rope = bf16(rotate(normed[:, NOPE_DIM:], cos_sin))
    return Record(record_groups(normed[:, :NOPE_DIM]), rope)


def query(weight: Tensor, rank: Bounded, cos_sin: Tensor) -> Bounded:
    """The heads' queries [T, H, 512] bfloat16 from the quantised low rank [T, 1280] by ``weight`` [H 512, 1280].

    Tolerance: `linear` over 1280, one bfloat16 step where it reaches an edge, and for the rotated 64
    dims of a head the same through the rotation.
    """
    flat = bf16(linear(weight, rank, wave_depth(Q_RANK)))
    heads = flat.map(lambda v: split(v, 1, -1, HEAD_DIM))
    return cat([heads[..., :NOPE_DIM], bf16(rotate(heads[..., NOPE_DIM:], cos_sin))], -1)


@dataclass(frozen=True, slots=True)
class KeyInputs:
    """What lists a token's keys.

    ``slot`` [T] (-1: a padding row), ``position`` [T], ``window`` [T, width] slots of the sliding
    window and ``window_length`` [T]; read only with a compress ratio: ``topk`` [T, 512] rows (-1: none),
    ``request`` [T], ``blocks`` [requests, n] and the compressed cache's rows a block.
    """

    slot: Tensor
    position: Tensor
    window: Tensor
    window_length: Tensor
    ratio: int
    topk: Tensor
    request: Tensor
    blocks: Tensor
    block_rows: int


@dataclass(frozen=True, slots=True)
class Keys:
    """The key table [T, 640] int32, each token's number of keys and of compressed keys [T].

    An entry is a slot of the sliding-window cache, a slot of the compressed cache with bit 31 set, or
    -1. Compressed keys come first, in the order of the selection.
    """

    table: Tensor
    length: Tensor
    compressed: Tensor


def keys(given: KeyInputs) -> Keys:
    """List every token's keys. Integers: nothing may differ."""
    tokens = given.slot.shape[0]
    table = torch.full((tokens, KEYS), -1, dtype=torch.int64)
    length = torch.zeros(tokens, dtype=torch.int64)
    compressed = torch.zeros(tokens, dtype=torch.int64)
    for t in range(tokens):
        if int(given.slot[t]) < 0:
            continue
        entries = _compressed_keys(given, t) if given.ratio else []
        compressed[t] = len(entries)
        entries += given.window[t, : int(given.window_length[t])].tolist()
        length[t] = len(entries)
        table[t, : len(entries)] = torch.tensor(entries)
    return Keys(table.int(), length.int(), compressed.int())


def _compressed_keys(given: KeyInputs, t: int) -> list[int]:
    count = min((int(given.position[t]) + 1) // given.ratio, TOPK_KEYS)
    entries = []
    for row in given.topk[t, :count].tolist():
        block = int(given.blocks[given.request[t], max(row, 0) // given.block_rows])
        slot = block * given.block_rows + row % given.block_rows
        entries.append(slot + COMPRESSED if row >= 0 else -1)
    return entries
