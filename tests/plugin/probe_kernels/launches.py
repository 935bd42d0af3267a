"""Launches over device addresses: static, computed and several grids, and some that must be refused."""

from __future__ import annotations

from dataclasses import dataclass

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl._mlir import ir
from flydsl._mlir.dialects import llvm
from flydsl.expr import rocdl
from flydsl.expr.typing import Float32, Int32, Int64, T

from probe_kernels.arithmetic import combined

_STREAM = fx.Stream(None)


@dataclass(frozen=True)
class Build:
    """``block`` work-items a workgroup; ``fold`` is not read by the code; ``name`` is the symbol's."""

    block: int
    fold: bool = False


def _element(base: object, index: object) -> object:
    address = base + fx.Int64(index) * 4
    return llvm.IntToPtrOp(ir.Type.parse("!llvm.ptr<1>"), address.ir_value()).result


def _kernel(name: str, block: int) -> object:
    @flyc.kernel(name=name, known_block_size=[block, 1, 1])
    def add(left: Int64, right: Int64, out: Int64, count: Int32, scale: Float32):
        index = fx.block_idx.x * block + fx.thread_idx.x
        if index < count:
            a = fx.Float32(llvm.LoadOp(T.f32, _element(left, index)).result)
            b = fx.Float32(llvm.LoadOp(T.f32, _element(right, index)).result)
            llvm.StoreOp(combined(a, b, scale).ir_value(), _element(out, index))

    return add


def computed(build: Build) -> object:
    """One dispatch whose grid follows from ``count``."""
    add, block = _kernel(f"probe_add_{build.block}", build.block), build.block

    @flyc.jit
    def launch(
        left: Int64,
        right: Int64,
        out: Int64,
        count: Int32,
        scale: Float32,
        stream: fx.Stream = _STREAM,
    ):
        grid = (count + (block - 1)) // block
        add(left, right, out, count, scale).launch(
            grid=(grid, 1, 1), block=(block, 1, 1), stream=stream
        )

    return launch


def hinted(build: Build) -> object:
    """`computed` with a compile hint that changes its code."""
    launch = computed(build)
    launch.compile_hints = {"fast_fp_math": True}
    return launch


def misspelt(build: Build) -> object:
    """`computed` with a hint that FlyDSL would ignore in silence."""
    launch = computed(build)
    launch.compile_hints = {"fast_fp_maths": True}
    return launch


def chain(build: Build) -> object:
    """Two dispatches; the second runs on what is left after ``skip`` elements."""
    add, block = _kernel(f"probe_chain_{build.block}", build.block), build.block

    @flyc.jit
    def launch(left: Int64, out: Int64, count: Int32, skip: Int32, scale: Float32):
        add(left, left, out, count, scale).launch(
            grid=((count + (block - 1)) // block, 1, 1), block=(block, 1, 1)
        )
        rest = count - skip
        add(out, left, out, rest, scale).launch(
            grid=((rest + (block - 1)) // block, 1, 1), block=(block, 1, 1)
        )

    return launch


def resident(build: Build) -> object:
    """A static grid of 256 workgroups, as mono launches have."""
    add, block = _kernel(f"probe_resident_{build.block}", build.block), build.block

    @flyc.jit
    def launch(
        left: Int64,
        right: Int64,
        out: Int64,
        count: Int32,
        scale: Float32,
        stream: fx.Stream = _STREAM,
    ):
        add(left, right, out, count, scale).launch(grid=(256,), block=(block, 1, 1), stream=stream)

    return launch


def conditional(build: Build) -> object:
    """A dispatch that depends on an argument: no launch plan has conditions."""
    add, block = _kernel(f"probe_conditional_{build.block}", build.block), build.block

    @flyc.jit
    def launch(
        left: Int64,
        right: Int64,
        out: Int64,
        count: Int32,
        scale: Float32,
        stream: fx.Stream = _STREAM,
    ):
        if count > 3:
            add(left, right, out, count, scale).launch(
                grid=(1,), block=(block, 1, 1), stream=stream
            )

    return launch


def unselectable(build: Build) -> object:
    """An instruction that gfx950 has and gfx942 lacks: there LLVM aborts the process."""

    @flyc.kernel(name=f"probe_swap_{build.block}", known_block_size=[build.block, 1, 1])
    def swap(out: Int64):
        pair = llvm.StructType.get_literal([T.i32, T.i32])
        lane = fx.Int32(fx.thread_idx.x).ir_value()
        both = rocdl.permlane32_swap(pair, lane, lane, False, False)
        llvm.StoreOp(llvm.extractvalue(T.i32, both, [0]), _element(out, fx.thread_idx.x))

    @flyc.jit
    def launch(out: Int64, stream: fx.Stream = _STREAM):
        swap(out).launch(grid=(1,), block=(build.block, 1, 1), stream=stream)

    return launch
