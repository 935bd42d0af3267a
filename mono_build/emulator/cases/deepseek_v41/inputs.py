"""A decode step's inputs from a seed: requests, positions, caches, tables, and the seam's activations.

Requests come one after the other with a few rows each, at positions around the edges that the kernels
have: the first token, a window that is just not full, just full and beyond, fewer compressed rows than
the selection holds and more. The last row is padding where the step has room for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mono_build.emulator.cases.deepseek_v41.build import Target
from mono_build.emulator.cases.deepseek_v41.rng import Random
from mono_build.emulator.cases.deepseek_v41.weights import e4m3_table
from mono_build.emulator.references.bounded import exact
from mono_build.emulator.references.deepseek_v41.attention import Cache
from mono_build.emulator.references.deepseek_v41.front import KeyInputs, Record
from mono_build.emulator.references.deepseek_v41.geometry import (
    HIDDEN,
    NOPE_DIM,
    RECORD,
    RECORD_DATA,
    RECORD_GROUP,
    ROPE_DIM,
    STREAMS,
    TOPK_KEYS,
    WINDOW,
)
from mono_build.emulator.references.deepseek_v41.layer import SeamInputs
from mono_build.emulator.references.formats import encode_e4m3, scale

POSITIONS = 4096
WINDOW_BLOCK = 64  # rows of a block of the sliding-window cache
COMPRESSED_BLOCK = 32
PAGE_GAP = 64  # bytes between a block's end and the next: strides are not block sizes
# First positions of requests, in turn, and how many rows each has.
EDGES = (1500, WINDOW - 1, 0, 700, 2 * TOPK_KEYS - 3, WINDOW, 1, 3000, WINDOW - 2, 5)
ROWS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Step:
    """What a step is asked: [T] unless said otherwise.

    ``position`` and ``slot`` are int64; a slot of -1 is a padding row. ``window`` [T, width],
    ``window_length``, ``request``, ``topk`` [T, 512] and ``blocks`` [requests, n] are int32. ``cos_sin``
    [4096, 64] float32 holds 32 cosines and 32 sines a position.
    """

    position: Tensor
    slot: Tensor
    window: Tensor
    window_length: Tensor
    request: Tensor
    topk: Tensor
    blocks: Tensor
    window_cache: Cache
    compressed_cache: Cache
    cos_sin: Tensor

    def keys(self, ratio: int) -> KeyInputs:
        """What lists the keys."""
        return KeyInputs(
            self.slot,
            self.position,
            self.window,
            self.window_length,
            ratio,
            self.topk,
            self.request,
            self.blocks,
            COMPRESSED_BLOCK,
        )

    def rotation(self) -> Tensor:
        """Each row's cosines and sines [T, 64]."""
        return self.cos_sin[self.position]


@dataclass(frozen=True, slots=True)
class Activations:
    """A seam's inputs: ``x`` [T, 5120] and ``residual`` [T, 4, 5120] bfloat16; mixes in float32."""

    x: Tensor
    residual: Tensor
    post: Tensor
    comb: Tensor
    pre: Tensor

    def known(self) -> SeamInputs:
        """All but ``x`` for the references."""
        return SeamInputs(exact(self.residual), exact(self.post), exact(self.comb), exact(self.pre))


def activations(tokens: int, random: Random) -> Activations:
    """Activations as a seam meets them: streams of order one, a nearly doubly stochastic ``comb``."""
    comb = torch.softmax(random.of("comb").normal(tokens, STREAMS, STREAMS), -1)
    for _ in range(8):
        comb = comb / comb.sum(-2, keepdim=True)
        comb = comb / comb.sum(-1, keepdim=True)
    return Activations(
        random.of("x").normal(tokens, HIDDEN).bfloat16(),
        random.of("residual").normal(tokens, STREAMS, HIDDEN).bfloat16(),
        random.of("post").uniform(tokens, STREAMS, low=0.1, high=1.9),
        comb,
        random.of("pre").uniform(tokens, STREAMS, low=0.05, high=1.0),
    )


def step(target: Target, random: Random, *, padding: bool) -> Step:
    """A step of the build's width; ``padding`` makes its last row one, if it has more than one."""
    b = target.build
    sizes = [ROWS[i % len(ROWS)] for i in range(b.tokens)]
    request = torch.arange(b.tokens).repeat_interleave(torch.tensor(sizes))[: b.tokens]
    requests = int(request[-1]) + 1
    first = torch.tensor([EDGES[(target.edge + i) % len(EDGES)] for i in range(requests)])
    place = torch.arange(b.tokens) - torch.searchsorted(request, request)
    position = first[request] + place
    blocks_each = -(-(b.swa_width + max(ROWS)) // WINDOW_BLOCK) + 1
    pages = (
        random.of("window pages").permutation(requests * blocks_each).view(requests, blocks_each)
    )
    slot = _window_slots(pages[request], position[:, None])[:, 0]
    # A causal window reaches back; a draft's wider row also lists what lies after it.
    length = torch.minimum(position + 1, torch.tensor(WINDOW)) + (b.swa_width - WINDOW)
    start = torch.clamp(position + 1 - WINDOW, min=0)
    window = _window_slots(pages[request], start[:, None] + torch.arange(b.swa_width))
    window = torch.where(torch.arange(b.swa_width) < length[:, None], window, -1)
    if padding and b.tokens > 1:
        slot[-1], position[-1], length[-1] = -1, 0, 77  # a length that must not be used
    rows = (position + 1) // b.ratio if b.ratio else torch.zeros_like(position)
    topk = torch.full((b.tokens, TOPK_KEYS), -1)
    for t in range(b.tokens):
        chosen = random.of("topk", t).permutation(max(int(rows[t]), 1))[:TOPK_KEYS]
        if int(rows[t]) > 2:
            chosen[1] = -1  # a hole in the selection
        topk[t, : len(chosen)] = chosen
    pages_far = -(-int(rows.max() + 1) // COMPRESSED_BLOCK)
    blocks = random.of("far pages").permutation(requests * pages_far).view(requests, pages_far)
    return Step(
        position,
        slot,
        window.int(),
        length.int(),
        request.int(),
        topk.int(),
        blocks.int(),
        cache(requests * blocks_each, WINDOW_BLOCK, random.of("window"), fnuz=target.gfx942),
        cache(requests * pages_far, COMPRESSED_BLOCK, random.of("compressed"), fnuz=False),
        rotations(),
    )


def cache(blocks: int, rows: int, random: Random, *, fnuz: bool) -> Cache:
    """A cache full of records of order one; its pages are some bytes apart, which hold 0xFF."""
    codes = random.of("codes").drawn(e4m3_table(), blocks, rows, NOPE_DIM)
    if fnuz:
        codes = torch.where(codes == 0x80, 0, codes).to(torch.uint8)
    rope = random.of("rope").normal(blocks, rows, ROPE_DIM).bfloat16().view(torch.uint8)
    data = torch.cat([codes, rope.view(blocks, rows, -1)], 2).view(blocks, -1)
    scales = random.of("scales").integers(119, 122, blocks, rows, NOPE_DIM // RECORD_GROUP + 1)
    scales = scales.to(torch.uint8) + int(fnuz)
    scales[..., 7] = 0xFF  # nobody reads the eighth
    pages = torch.full((blocks, rows * RECORD + PAGE_GAP), 0xFF, dtype=torch.uint8)
    pages[:, : rows * RECORD_DATA] = data
    pages[:, rows * RECORD_DATA : rows * RECORD] = scales.view(blocks, -1)
    return Cache(pages, rows, fnuz)


def with_records(cache: Cache, record: Record, slots: Tensor) -> Cache:
    """A copy of the cache with rows' records at their slots (-1: none)."""
    data = cache.data.clone()
    codes = encode_e4m3(
        record.nope.values.value / scale(record.nope.codes).repeat_interleave(RECORD_GROUP, 1)
    )
    if cache.fnuz:
        codes = torch.where(codes == 0x80, 0, codes).to(torch.uint8)
    rope = record.rope.value.bfloat16().view(torch.uint8)
    scales = (record.nope.codes + int(cache.fnuz)).to(torch.uint8)
    for t, slot in enumerate(slots.tolist()):
        if slot >= 0:
            block, row = divmod(slot, cache.rows)
            at = row * RECORD_DATA
            data[block, at : at + RECORD_DATA] = torch.cat([codes[t], rope[t]])
            at = cache.rows * RECORD_DATA + row * (RECORD - RECORD_DATA)
            data[block, at : at + 7] = scales[t]
    return Cache(data, cache.rows, cache.fnuz)


def rotations() -> Tensor:
    """Plain rotary embedding, base 10000: [4096, 64] float32, cosines then sines."""
    frequency = 10000.0 ** (-torch.arange(0, ROPE_DIM, 2).double() / ROPE_DIM)
    angle = torch.arange(POSITIONS).double()[:, None] * frequency
    return torch.cat([angle.cos(), angle.sin()], 1).float()


def _window_slots(pages: Tensor, positions: Tensor) -> Tensor:
    block = positions // WINDOW_BLOCK % pages.shape[1]
    return pages.gather(1, block) * WINDOW_BLOCK + positions % WINDOW_BLOCK
