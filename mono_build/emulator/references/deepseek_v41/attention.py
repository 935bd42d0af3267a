"""Sparse attention over the sliding window and the selected compressed rows, and the output projections."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mono_build.emulator.references.bounded import (
    Bounded,
    bf16,
    cat,
    clamp,
    constant,
    exact,
    largest,
    linear,
    monotone,
    product,
    stack,
    total,
    where,
)
from mono_build.emulator.references.deepseek_v41.front import Keys, rotate, wave_depth
from mono_build.emulator.references.deepseek_v41.geometry import (
    HEAD_DIM,
    NOPE_DIM,
    RECORD_DATA,
    RECORD_GROUP,
    RECORD_SCALES,
)
from mono_build.emulator.references.formats import Quantised, Rule, decode_e4m3, mxfp8, scale

LOG2E = 1.4426950408889634
# What scores are multiplied with: 512^-0.5 log2(e) in float32, so that softmax is in base 2.
QK_SCALE = float(torch.tensor(HEAD_DIM**-0.5 * LOG2E, dtype=torch.float32))
# float32's most negative number: the score of a key that is not there.
NO_KEY = -3.4028234663852886e38


@dataclass(frozen=True, slots=True)
class Cache:
    """A KV cache: ``data`` [blocks, bytes] uint8, each block ``rows`` times 576 bytes, then 8 a row.

    ``fnuz`` says which E4M3 its bytes are.
    """

    data: Tensor
    rows: int
    fnuz: bool

    def values(self, slots: Tensor) -> Tensor:
        """The 512 dequantised values of each slot: [n, 512] float64."""
        block, row = slots // self.rows, slots % self.rows
        at = (row * RECORD_DATA)[:, None] + torch.arange(RECORD_DATA)
        data = self.data[block[:, None], at]
        scales = (self.rows * RECORD_DATA + row * RECORD_SCALES)[:, None] + torch.arange(7)
        codes = self.data[block[:, None], scales].int()
        nope = decode_e4m3(data[:, :NOPE_DIM], fnuz=self.fnuz)
        nope = nope * scale(codes).repeat_interleave(RECORD_GROUP, 1)
        rope = data[:, NOPE_DIM:].contiguous().view(torch.bfloat16).double()
        return torch.cat([nope, rope], 1)


def key_values(
    keys: Keys, token: int, window: Cache, compressed: Cache | None
) -> tuple[Tensor, Tensor]:
    """A token's keys as values [n, 512] and whether each is there [n]; absent ones are zero."""
    row = keys.table[token, : int(keys.length[token])].long()
    values = torch.zeros(len(row), HEAD_DIM, dtype=torch.float64)
    in_window = row >= 0
    values[in_window] = window.values(row[in_window])
    if compressed is not None:
        far = (row < 0) & (row != -1)
        values[far] = compressed.values(row[far] & 0x7FFFFFFF)
    return values, row != -1


@dataclass(frozen=True, slots=True)
class Partial:
    """One chunk of keys of a token: unnormalised output [H, 512] bfloat16, largest score and sum [H]."""

    output: Bounded
    largest: Bounded
    total: Bounded


def partial(q: Bounded, k: Tensor, there: Tensor) -> Partial:
    """Attend ``q`` [H, 512] to a chunk ``k`` [n, 512].

    Scores are base-2 logarithms: ``q . k`` in float32 times `QK_SCALE`. The sum takes the unrounded
    weights, the output bfloat16 ones. A chunk without keys has the largest score -FLT_MAX, sum 0.

    Tolerance: a score by `linear` over 512; a weight by its exponential's slope, and one bfloat16 step
    where that reaches an edge; the output by `product` over the keys and one bfloat16 step.
    """
    raw = linear(k, q, HEAD_DIM)
    scores = where(there, raw * constant(QK_SCALE, raw), constant(NO_KEY, raw))
    top = largest(scores, -1)
    weights = monotone(_minus(scores, top), torch.exp2, 1)
    weights = where(there, weights, constant(0.0, weights))
    return Partial(bf16(product(bf16(weights), exact(k))), top, total(weights, -1, len(k)))


def chunks(q: Bounded, k: Tensor, there: Tensor, size: int) -> list[Partial]:
    """All chunks of ``size`` keys of a token; none when it has no keys."""
    starts = range(0, len(k), size)
    return [partial(q, k[i : i + size], there[i : i + size]) for i in starts]


def combine(partials: list[Partial], sink: Tensor) -> Bounded:
    """Merge a token's chunks with the sink's logit [H] (natural): the output [H, 512] in bfloat16.

    Without chunks (a padding row) it is zero.

    Tolerance: exponentials of differences, float32 sums over the chunks, one division, one bfloat16
    step where those reach an edge.
    """
    if not partials:
        return exact(torch.zeros(len(sink), HEAD_DIM))
    sink_score = exact(sink) * constant(LOG2E, exact(sink))
    tops = stack([p.largest for p in partials] + [sink_score], 0)
    top = largest(tops, 0)
    weights = monotone(_minus(tops.map(torch.t), top), torch.exp2, 1).map(torch.t)
    denominator = weights[len(partials)]
    output = constant(0.0, partials[0].output)
    for i, p in enumerate(partials):
        denominator = denominator + p.total * weights[i]
        output = output + p.output * weights[i][:, None]
    return bf16(output * (constant(1.0, denominator) / denominator)[:, None])


def unrotate(output: Bounded, cos_sin: Tensor) -> Quantised:
    """The inverse rotation of each head's last 64 dims ([T, H, 512]), in float32, and MXFP8 of it all: [T, H 512]."""
    rotated = rotate(output[..., NOPE_DIM:], cos_sin, inverse=True)
    return mxfp8(
        cat([output[..., :NOPE_DIM], rotated], -1).map(lambda v: v.flatten(1)), Rule.DIVIDE
    )


def project_groups(weight: Tensor, output: Bounded, groups: int) -> Quantised:
    """Each output group's heads ([T, groups 4096]) by its rows of ``weight`` [groups 1024, 4096]; bfloat16, MXFP8.

    Tolerance: `linear` over 4096, one bfloat16 step and one E4M3 step where it reaches their edges.
    """
    width, rows = output.shape[1] // groups, weight.shape[0] // groups
    parts = [
        linear(
            weight[g * rows : (g + 1) * rows],
            output[:, g * width : (g + 1) * width],
            wave_depth(width, 4),
        )
        for g in range(groups)
    ]
    return mxfp8(bf16(cat(parts, 1)), Rule.DIVIDE)


def project(weight: Tensor, x: Bounded) -> Bounded:
    """A rank's unreduced output [T, 5120] bfloat16 by ``weight`` [5120, groups 1024].

    Tolerance: `linear`, one bfloat16 step where it reaches an edge.
    """
    return bf16(linear(weight, x, wave_depth(weight.shape[1])))


def reduce_ranks(parts: list[Bounded]) -> Bounded:
    """The ranks' bfloat16 parts added in float32 in the order of the ranks, then bfloat16.

    IEEE operations in a stated order: exact given exact inputs.
    """
    value = parts[0]
    for part in parts[1:]:
        value = value + part
    return bf16(value)


def _minus(x: Bounded, top: Bounded) -> Bounded:
    # The largest itself is exactly zero in any computation, and nothing is above it.
    difference = x - top.map(lambda v: v[..., None])
    return clamp(difference, high=0.0)
