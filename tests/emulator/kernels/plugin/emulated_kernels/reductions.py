"""Reductions in a workgroup: an LDS tree, softmax, and the root mean square of bf16 rows."""

from __future__ import annotations

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr import const_expr, gpu, range_constexpr, rocdl
from flydsl.expr import math as fmath
from flydsl.expr.typing import BFloat16, Float32, Int32, Int64, T

from emulated_kernels.device import STREAM, WAVE, Build, load, store

_LOG2E = 1.4426950408889634


def _across_wave(value: object, combine: object) -> object:
    """All lanes get the combination of all lanes' values."""
    for bit in range_constexpr(6):
        value = combine(value, value.shuffle_xor(1 << bit, WAVE))
    return value


def _exp2(value: object) -> object:
    return Float32(rocdl.exp2(T.f32, value.ir_value()))


def _sum(a: object, b: object) -> object:
    return a + b


def lds_sum(build: Build) -> object:
    """Each workgroup sums ``count`` f32 of its own: strided by work-item, then by a tree in LDS."""
    block = build.block

    @flyc.kernel(name="emulated_lds_sum", known_block_size=[block, 1, 1])
    def reduce(values: Int64, sums: Int64, count: Int32):
        item, group = fx.thread_idx.x, fx.block_idx.x
        cells = fx.SharedAllocator().allocate(fx.Array[Float32, block, 16]).peek()
        total = Float32(0.0)
        for index in range(item, count, block):
            total = total + load(values, group * count + fx.Int32(index), Float32)
        cells[item] = total
        gpu.barrier()
        for k in range_constexpr(block.bit_length() - 1):
            half = block >> (k + 1)
            if item < half:
                cells[item] = cells[item] + cells[item + half]
            gpu.barrier()
        if item == 0:
            store(sums, group, cells[0], Float32)

    @flyc.jit
    def launch(values: Int64, sums: Int64, count: Int32, groups: Int32, stream: fx.Stream = STREAM):
        reduce(values, sums, count).launch(grid=(groups, 1, 1), block=(block, 1, 1), stream=stream)

    return launch


def lds_overrun(build: Build) -> object:
    """Every work-item writes to its LDS word, or to one that is ``shift`` words further."""
    block = build.block

    @flyc.kernel(name="emulated_lds_overrun", known_block_size=[block, 1, 1])
    def write(out: Int64, shift: Int32):
        item = fx.thread_idx.x
        cells = fx.SharedAllocator().allocate(fx.Array[Int32, block, 16]).peek()
        (cells.ptr + (item + shift)).store(item)
        gpu.barrier()
        store(out, item, cells[block - 1 - item], Int32)

    @flyc.jit
    def launch(out: Int64, shift: Int32, stream: fx.Stream = STREAM):
        write(out, shift).launch(grid=(1, 1, 1), block=(block, 1, 1), stream=stream)

    return launch


def _softmax(build: Build, name: str, has_barrier: bool) -> object:
    block, waves, each = build.block, build.block // WAVE, 4

    @flyc.kernel(name=name, known_block_size=[block, 1, 1])
    def softmax(values: Int64, out: Int64, count: Int32):
        item, row = fx.thread_idx.x, fx.block_idx.x
        lane, wave = item % WAVE, item // WAVE
        cells = fx.SharedAllocator().allocate(fx.Array[Float32, waves, 16]).peek()

        def across_group(value: object, combine: object) -> object:
            value = _across_wave(value, combine)
            if lane == 0:
                (cells.ptr + wave).store(value)
            gpu.barrier()
            total = cells[0]
            for k in range_constexpr(1, waves):
                total = combine(total, cells[k])
            return total

        own = []
        for k in range_constexpr(each):
            index = item + k * block
            value = Float32(float("-inf"))
            if index < count:
                value = load(values, row * count + index, Float32)
            own.append(value)
        largest = own[0]
        for k in range_constexpr(1, each):
            largest = fx.max(largest, own[k])
        largest = across_group(largest, fx.max)
        if const_expr(has_barrier):
            gpu.barrier()  # all waves have read the maxima before one writes its sum in their place
        own = [_exp2((v - largest) * _LOG2E) for v in own]
        total = across_group((own[0] + own[1]) + (own[2] + own[3]), _sum)
        for k in range_constexpr(each):
            index = item + k * block
            if index < count:
                store(out, row * count + index, own[k] / total, Float32)

    @flyc.jit
    def launch(values: Int64, out: Int64, count: Int32, rows: Int32, stream: fx.Stream = STREAM):
        softmax(values, out, count).launch(grid=(rows, 1, 1), block=(block, 1, 1), stream=stream)

    return launch


def softmax(build: Build) -> object:
    """Rows of up to four f32 a work-item."""
    return _softmax(build, "emulated_softmax", True)


def racing_softmax(build: Build) -> object:
    """`softmax` in which a wave can overwrite a maximum that another has yet to read."""
    return _softmax(build, "emulated_racing_softmax", False)


def rmsnorm(build: Build) -> object:
    """Rows of eight bf16 a work-item, times weights: f32 inside, rounded once."""
    block, waves, each = build.block, build.block // WAVE, 8

    @flyc.kernel(name="emulated_rmsnorm", known_block_size=[block, 1, 1])
    def rmsnorm(values: Int64, weights: Int64, out: Int64, epsilon: Float32):
        item, row = fx.thread_idx.x, fx.block_idx.x
        cells = fx.SharedAllocator().allocate(fx.Array[Float32, waves, 16]).peek()
        at = row * (block * each) + item * each
        own = load(values, at, BFloat16, each).to(Float32)
        squares = own * own
        total = squares[0]
        for k in range_constexpr(1, each):
            total = total + squares[k]
        total = _across_wave(total, _sum)
        if item % WAVE == 0:
            cells[item // WAVE] = total
        gpu.barrier()
        total = cells[0]
        for k in range_constexpr(1, waves):
            total = total + cells[k]
        scale = fmath.rsqrt(total / float(block * each) + epsilon)
        weight = load(weights, item * each, BFloat16, each).to(Float32)
        store(out, at, (own * scale * weight).to(BFloat16), BFloat16, each)

    @flyc.jit
    def launch(
        values: Int64,
        weights: Int64,
        out: Int64,
        rows: Int32,
        epsilon: Float32,
        stream: fx.Stream = STREAM,
    ):
        rmsnorm(values, weights, out, epsilon).launch(
            grid=(rows, 1, 1), block=(block, 1, 1), stream=stream
        )

    return launch
