"""Vector additions: with a test for the ragged edge, with a buffer descriptor's bounds, with neither."""

from __future__ import annotations

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr import rocdl
from flydsl.expr.typing import Float32, Int32, Int64, T

from emulated_kernels.device import STREAM, Build, element, load, store


def _launcher(add: object, block: int) -> object:
    @flyc.jit
    def launch(left: Int64, right: Int64, out: Int64, count: Int32, stream: fx.Stream = STREAM):
        grid = (count + (block - 1)) // block
        add(left, right, out, count).launch(grid=(grid, 1, 1), block=(block, 1, 1), stream=stream)

    return launch


def vector_add(build: Build) -> object:
    """Work-items behind the end do nothing."""
    block = build.block

    @flyc.kernel(name="emulated_vector_add", known_block_size=[block, 1, 1])
    def add(left: Int64, right: Int64, out: Int64, count: Int32):
        index = fx.block_idx.x * block + fx.thread_idx.x
        if index < count:
            total = load(left, index, Float32) + load(right, index, Float32)
            store(out, index, total, Float32)

    return _launcher(add, block)


def overrun(build: Build) -> object:
    """`vector_add` that forgot the end."""
    block = build.block

    @flyc.kernel(name="emulated_overrun", known_block_size=[block, 1, 1])
    def add(left: Int64, right: Int64, out: Int64, count: Int32):
        index = fx.block_idx.x * block + fx.thread_idx.x
        total = load(left, index, Float32) + load(right, index, Float32)
        store(out, index, total, Float32)

    return _launcher(add, block)


def bounded_add(build: Build) -> object:
    """No test for the end: the buffers' sizes make loads behind it 0 and drop stores."""
    block = build.block

    @flyc.kernel(name="emulated_bounded_add", known_block_size=[block, 1, 1])
    def add(left: Int64, right: Int64, out: Int64, count: Int32):
        offset = (fx.block_idx.x * block + fx.thread_idx.x) * 4
        first, second, result = (
            rocdl.get_buffer_rsrc(
                rocdl.make_buffer_ptr(element(a, 0, Float32), num_records_bytes=count * 4)
            )
            for a in (left, right, out)
        )
        a = Float32(rocdl.raw_ptr_buffer_load(T.f32, first, offset, fx.Int32(0), 0))
        b = Float32(rocdl.raw_ptr_buffer_load(T.f32, second, offset, fx.Int32(0), 0))
        total = (a + b + 1.0).ir_value()
        rocdl.raw_ptr_buffer_store(total, result, offset.ir_value(), fx.Int32(0).ir_value())

    return _launcher(add, block)
