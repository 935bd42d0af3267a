"""Matrix products on the matrix cores: out[m, n] = sum over k of a[m, k] * b[n, k], in f32."""

from __future__ import annotations

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr import const_expr, gpu, range_constexpr, rocdl
from flydsl.expr.typing import BFloat16, Float32, Int32, Int64, T, Vector
from flydsl.runtime.device import get_rocm_arch

from emulated_kernels.device import STREAM, WAVE, Build, load, store

_TILE = 16
_SIDE = 64  # of a workgroup's part of the result


def _zeros() -> object:
    return Vector.filled(4, 0.0, Float32)


def _store_tile(out: object, row: object, column: object, width: object, tile: object) -> None:
    """Lane l holds rows 4 * (l / 16) + r of column l % 16."""
    lane = fx.thread_idx.x % WAVE
    for r in range_constexpr(4):
        place = (row + (lane // _TILE) * 4 + r) * width + column + lane % _TILE
        store(out, place, tile[r], Float32)


def gemm_bf16(build: Build) -> object:
    """64 x 64 a workgroup of four waves, tiles of 64 in k through LDS; all sizes are multiples of 64."""
    block = build.block
    depth = 32 if get_rocm_arch() == "gfx950" else 16
    each = depth // 4  # elements of k that a lane gives to one instruction
    pitch = _SIDE + 8  # elements between two rows in LDS

    def product(a: object, b: object, c: object) -> object:
        if const_expr(depth == 32):
            return Vector(rocdl.mfma_f32_16x16x32_bf16(T.vec(4, T.f32), [a, b, c]))
        a, b = (x.bitcast(fx.Int16) for x in (a, b))
        return Vector(rocdl.mfma_f32_16x16x16bf16_1k(T.vec(4, T.f32), [a, b, c]))

    @flyc.kernel(name="emulated_gemm_bf16", known_block_size=[block, 1, 1])
    def gemm(a: Int64, b: Int64, out: Int64, width: Int32, length: Int32):
        item = fx.thread_idx.x
        lane, wave = item % WAVE, item // WAVE
        first_row, first_column = fx.block_idx.y * _SIDE, fx.block_idx.x * _SIDE
        shared = fx.SharedAllocator()
        tiles = [shared.allocate(fx.Array[BFloat16, _SIDE * pitch, 16]).peek() for _ in range(2)]
        own_rows = (wave // 2) * 32 + lane % _TILE
        own_columns = (wave % 2) * 32 + lane % _TILE

        def operand(tile: object, row: object, k: int) -> object:
            place = tile.ptr + (row * pitch + k * depth + (lane // _TILE) * each)
            return place.load(Vector.make_type(each, BFloat16))

        sums = [_zeros() for _ in range(4)]
        for step in range(0, length, _SIDE):
            for k in range_constexpr(2):
                at = item + k * block
                row, part = at // 8, at % 8
                for tile, source, first in zip(
                    tiles, (a, b), (first_row, first_column), strict=True
                ):
                    place = (first + row) * length + fx.Int32(step) + part * 8
                    value = load(source, place, BFloat16, 8)
                    (tile.ptr + (row * pitch + part * 8)).store(value)
            gpu.barrier()
            for k in range_constexpr(_SIDE // depth):
                left = [operand(tiles[0], own_rows + _TILE * i, k) for i in range(2)]
                right = [operand(tiles[1], own_columns + _TILE * j, k) for j in range(2)]
                sums = [product(left[n // 2], right[n % 2], sums[n]) for n in range(4)]
            gpu.barrier()
        for n in range_constexpr(4):
            row = first_row + (wave // 2) * 32 + _TILE * (n // 2)
            column = first_column + (wave % 2) * 32 + _TILE * (n % 2)
            _store_tile(out, row, column, width, sums[n])

    @flyc.jit
    def launch(
        a: Int64,
        b: Int64,
        out: Int64,
        rows: Int32,
        width: Int32,
        length: Int32,
        stream: fx.Stream = STREAM,
    ):
        gemm(a, b, out, width, length).launch(
            grid=(width // _SIDE, rows // _SIDE, 1), block=(block, 1, 1), stream=stream
        )

    return launch


def gemm_fp8(build: Build) -> object:
    """16 x 16 a wave, straight from memory, four waves side by side; the format is the architecture's."""
    block = build.block

    @flyc.kernel(name="emulated_gemm_fp8", known_block_size=[block, 1, 1])
    def gemm(a: Int64, b: Int64, out: Int64, width: Int32, length: Int32):
        lane, wave = fx.thread_idx.x % WAVE, fx.thread_idx.x // WAVE
        row = fx.block_idx.y * _TILE
        column = fx.block_idx.x * _SIDE + wave * _TILE
        total = _zeros()
        for step in range(0, length, 32):
            k = fx.Int32(step) + (lane // _TILE) * 8
            left, right = (
                load(source, ((first + lane % _TILE) * length + k) // 8, Int64)
                for source, first in ((a, row), (b, column))
            )
            total = Vector(rocdl.mfma_f32_16x16x32_fp8_fp8(T.vec(4, T.f32), [left, right, total]))
        _store_tile(out, row, column, width, total)

    @flyc.jit
    def launch(
        a: Int64,
        b: Int64,
        out: Int64,
        rows: Int32,
        width: Int32,
        length: Int32,
        stream: fx.Stream = STREAM,
    ):
        gemm(a, b, out, width, length).launch(
            grid=(width // _SIDE, rows // _TILE, 1), block=(block, 1, 1), stream=stream
        )

    return launch


# The matrix format's number, and the bits of an element (CDNA4 ISA, "Matrix Core Operations").
_FP8, _FP4 = (0, 8), (4, 4)
_LENGTH = 512


def _scaled(build: Build, name: str, left: tuple[int, int], right: tuple[int, int]) -> object:
    """16 x 16 a wave over k = 512: four instructions of 128, each with its own byte of the scales.

    Scales: uint8 [row, k / 32 % 4, k / 128].
    """
    block = build.block

    def operand(source: object, row: object, step: int, bits: int) -> object:
        lane = fx.thread_idx.x % WAVE
        start = (row * _LENGTH + step * 128) * bits // 32
        if const_expr(bits == 4):  # 32 elements in a row
            low = load(source, start + (lane // _TILE) * 4, Int32, 4)
            return Vector.from_elements([low[i] for i in range(4)] + [fx.Int32(0)] * 4, Int32)
        parts = [load(source, start + half * 16 + (lane // _TILE) * 4, Int32, 4) for half in (0, 1)]
        return Vector.from_elements([p[i] for p in parts for i in range(4)], Int32)

    @flyc.kernel(name=name, known_block_size=[block, 1, 1])
    def gemm(a: Int64, b: Int64, scale_a: Int64, scale_b: Int64, out: Int64, width: Int32):
        lane, wave = fx.thread_idx.x % WAVE, fx.thread_idx.x // WAVE
        row, column = fx.block_idx.y * _TILE, fx.block_idx.x * _SIDE + wave * _TILE
        own = [first + lane % _TILE for first in (row, column)]
        scales = [
            load(s, r * 4 + lane // _TILE, Int32)
            for s, r in zip((scale_a, scale_b), own, strict=True)
        ]
        total = _zeros()
        for step in range_constexpr(4):
            x = operand(a, own[0], step, left[1])
            y = operand(b, own[1], step, right[1])
            formats, picks = (left[0], right[0]), (step, scales[0], step, scales[1])
            total = Vector(
                rocdl.mfma_scale_f32_16x16x128_f8f6f4(
                    T.vec(4, T.f32), [x, y, total, *formats, *picks]
                )
            )
        _store_tile(out, row, column, width, total)

    @flyc.jit
    def launch(
        a: Int64,
        b: Int64,
        scale_a: Int64,
        scale_b: Int64,
        out: Int64,
        rows: Int32,
        width: Int32,
        stream: fx.Stream = STREAM,
    ):
        gemm(a, b, scale_a, scale_b, out, width).launch(
            grid=(width // _SIDE, rows // _TILE, 1), block=(block, 1, 1), stream=stream
        )

    return launch


def mxfp8(build: Build) -> object:
    """Both sides E4M3 with a scale for each 32 elements of k."""
    return _scaled(build, "emulated_mxfp8", _FP8, _FP8)


def mxfp4(build: Build) -> object:
    """Both sides E2M1 with a scale for each 32 elements of k."""
    return _scaled(build, "emulated_mxfp4", _FP4, _FP4)


def mxfp8_mxfp4(build: Build) -> object:
    """E4M3 times E2M1, as in MoE layers with 8-bit activations and 4-bit weights."""
    return _scaled(build, "emulated_mxfp8_mxfp4", _FP8, _FP4)
