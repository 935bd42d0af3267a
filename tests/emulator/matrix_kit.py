"""Operands and results of matrix instructions, by the layouts that the documents give.

Layouts of the CDNA3 and CDNA4 ISA documents, and as vLLM's kernels load them: `SHAPES` and `result_place`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from shim_kit import words

# (bits, torch type); fp4 by its table
FORMATS = {
    "f32": (32, torch.float32),
    "f16": (16, torch.float16),
    "bf16": (16, torch.bfloat16),
    "fp8": (8, torch.float8_e4m3fn),
    "bf8": (8, torch.float8_e5m2),
    "fp8_fnuz": (8, torch.float8_e4m3fnuz),
    "bf8_fnuz": (8, torch.float8_e5m2fnuz),
    "fp4": (4, None),
}
FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
CBSZ = {"fp8": 0, "bf8": 1, "fp4": 4}


@dataclass(frozen=True)
class Shape:
    """M = N = `dim`, K = `depth`; `k_of(lane, element)` is the K of a lane's element, by its register order."""

    dim: int
    depth: int
    k_of: Callable[[int, int], int]

    def per_lane(self) -> int:
        return self.dim * self.depth // 64


SHAPES = {
    "16x16x4": Shape(16, 4, lambda lane, e: lane // 16),
    "16x16x16": Shape(16, 16, lambda lane, e: 4 * (lane // 16) + e),
    "16x16x32": Shape(16, 32, lambda lane, e: 8 * (lane // 16) + e),
    "32x32x2": Shape(32, 2, lambda lane, e: lane // 32),
    "32x32x8": Shape(32, 8, lambda lane, e: 4 * (lane // 32) + e),
    "32x32x16": Shape(32, 16, lambda lane, e: 8 * (lane // 32) + e),
    # An 8-bit operand of f8f6f4: two pieces of 16 bytes. vLLM's mma takes K 16 g .. +16 and 64 + 16 g .. +16.
    "16x16x128 bytes": Shape(16, 128, lambda lane, e: 16 * (lane // 16) + e % 16 + 64 * (e // 16)),
    "32x32x64 bytes": Shape(32, 64, lambda lane, e: 16 * (lane // 32) + e % 16 + 32 * (e // 16)),
    # A 4-bit operand: 32 K in a row, as vLLM's MXFP4 expert weights lie ("K block lane / 16").
    "16x16x128 nibbles": Shape(16, 128, lambda lane, e: 32 * (lane // 16) + e),
    "32x32x64 nibbles": Shape(32, 64, lambda lane, e: 32 * (lane // 32) + e),
}


def shape_of(shape: str, form: str) -> Shape:
    if shape in ("16x16x128", "32x32x64"):
        return SHAPES[f"{shape} {'nibbles' if form == 'fp4' else 'bytes'}"]
    return SHAPES[shape]


def random_operand(
    form: str, rows: int, depth: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes [row, K] without NaN or infinity, of values of about one size, and the values in f64."""
    width, dtype = FORMATS[form]
    values = torch.randn((rows, depth), generator=generator)
    if form == "fp4":
        codes = torch.randint(0, 16, (rows, depth), generator=generator)
        return codes, torch.where(codes >= 8, -FP4[codes & 7], FP4[codes & 7])
    assert dtype is not None
    typed = values.to(dtype)
    integer = {32: torch.int32, 16: torch.int16, 8: torch.int8}[width]
    codes = typed.view(integer).to(torch.int64) & ((1 << width) - 1)
    return codes, typed.to(torch.float64)


def registers_of(codes: torch.Tensor, width: int, shape: Shape) -> torch.Tensor:
    """int32 [register, lane]; lane l has row l % dim, elements from the lowest bits of the first register up."""
    lanes = torch.arange(64)
    packed = torch.zeros((max(1, shape.per_lane() * width // 32), 64), dtype=torch.int64)
    for e in range(shape.per_lane()):
        k = torch.tensor([shape.k_of(lane, e) for lane in range(64)])
        packed[e * width // 32] |= codes[lanes % shape.dim, k] << (e * width % 32)
    return words(packed)


def result_place(dim: int, register: int, lane: int) -> tuple[int, int]:
    """Row and column of C and D."""
    if dim == 16:
        return 4 * (lane // 16) + register, lane % 16
    return 8 * (register // 4) + 4 * (lane // 32) + register % 4, lane % 32


@cache
def result_places(dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and columns [register, lane]."""
    count = dim * dim // 64
    places = torch.tensor(
        [[result_place(dim, r, lane) for lane in range(64)] for r in range(count)]
    )
    return places[..., 0], places[..., 1]


def to_result(matrix: torch.Tensor) -> torch.Tensor:
    return matrix[result_places(matrix.shape[0])].contiguous().view(torch.int32)


def from_result(registers: torch.Tensor, dim: int) -> torch.Tensor:
    out = torch.empty((dim, dim))
    out[result_places(dim)] = registers.view(torch.float32)
    return out


def tolerance(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """Each of K + blocks + 1 roundings is at most 2^-24 of what the sum of magnitudes has reached."""
    return (a.shape[1] + 6) * 2.0**-24 * (a.abs() @ b.abs().T + c.abs())


def scaled_case(
    shape_name: str, form_a: str, form_b: str, seed: int, spread: int = 12
) -> dict[str, torch.Tensor]:
    """Operands, codes of scales [row, block] that differ in every block, C, and the exact D."""
    generator = torch.Generator().manual_seed(seed)
    dim = 16 if shape_name == "16x16x128" else 32
    depth = 2048 // dim
    case: dict[str, torch.Tensor] = {}
    total = []
    for side, form in (("a", form_a), ("b", form_b)):
        codes, values = random_operand(form, dim, depth, generator)
        scales = torch.randint(127 - spread, 128 + spread, (dim, depth // 32), generator=generator)
        case[side] = registers_of(codes, FORMATS[form][0], shape_of(shape_name, form))
        case[f"scale_{side}"] = scales
        total.append(torch.ldexp(values, scales.repeat_interleave(32, 1) - 127))
        case[f"plain_{side}"] = values
    case["c"] = torch.randn((dim, dim), generator=generator)
    case["exact"] = total[0] @ total[1].T + case["c"].to(torch.float64)
    case["tolerance"] = tolerance(total[0], total[1], case["c"].to(torch.float64))
    return case


def scale_lanes(scales: torch.Tensor, byte: int) -> torch.Tensor:
    """Lane g * dim + i has row i's code of the block K 32 g .. +32 in one byte; the other bytes are others' codes."""
    code = scales.T.reshape(-1)
    lanes = torch.full((64,), 0x11223344)
    return words((lanes & ~(0xFF << (8 * byte))) | code << (8 * byte))
