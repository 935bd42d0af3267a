"""Matrix instructions against f64 products, through layouts that are written down here once more.

Layouts, by the CDNA3 and CDNA4 ISA documents, and as vLLM's kernels load them: see `place` and `result_place`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from shim_kit import bits, compile_shim, floats, words

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
SPLAT = 0x40490FDB


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
DENSE = [
    ("16x16x4", "f32", "f32", "mfma_f32_16x16x4_f32"),
    ("32x32x2", "f32", "f32", "mfma_f32_32x32x2_f32"),
    *((s, f, f, f"mfma_f32_{s}_{f}") for s in ("16x16x16", "32x32x8", "16x16x32", "32x32x16") for f in ("f16", "bf16")),
    *(
        (s, f"{a}{kind}", f"{b}{kind}", f"mfma_f32_{s}_{a}_{b}{kind}")
        for s in ("16x16x32", "32x32x16")
        for kind in ("", "_fnuz")
        for a in ("fp8", "bf8")
        for b in ("fp8", "bf8")
    ),
]  # fmt: skip
SOURCE = (
    """
#include "matrix.h"
typedef uint32_t registers[64];
#define DENSE(name) void run_##name(registers *d, registers *a, registers *b, registers *c) \\
    { name(d, (matrix_source)a, (matrix_source)b, (matrix_source)c, SPLAT); }
#define SCALED(shape) \\
    void run_##shape(registers *d, registers *a, registers *b, registers *c, unsigned cbsz, unsigned blgp) \\
    { mfma_f32_##shape##_f8f6f4(d, (matrix_source)a, (matrix_source)b, (matrix_source)c, 0, cbsz, blgp); } \\
    void run_scale_##shape(registers *d, registers *a, registers *b, registers *c, unsigned cbsz, unsigned blgp, \\
                           uint32_t *sa, unsigned byte_a, uint32_t *sb, unsigned byte_b) \\
    { mfma_scale_f32_##shape##_f8f6f4(d, (matrix_source)a, (matrix_source)b, (matrix_source)c, 0, cbsz, blgp, \\
                                      sa, byte_a, sb, byte_b); }
SCALED(16x16x128)
SCALED(32x32x64)
"""
    + f"#define SPLAT {SPLAT}u\n"
    + "\n".join(f"DENSE({name})" for *_, name in DENSE)
)


@pytest.fixture(scope="module", params=["native", "portable"])
def shim(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    flags = ("-march=native",) if request.param == "native" else ()
    return compile_shim(SOURCE, tmp_path_factory.mktemp("matrix"), *flags)


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


def call(function: Callable[..., object], *arguments: torch.Tensor | int | None) -> None:
    function(
        *(ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else a for a in arguments)
    )


def tolerance(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """Each of K + blocks + 1 roundings is at most 2^-24 of what the sum of magnitudes has reached."""
    return (a.shape[1] + 6) * 2.0**-24 * (a.abs() @ b.abs().T + c.abs())


@pytest.mark.parametrize(("shape_name", "form_a", "form_b", "name"), DENSE)
def test_dense_products(
    shim: ctypes.CDLL, shape_name: str, form_a: str, form_b: str, name: str
) -> None:
    generator = torch.Generator().manual_seed(1)
    shape = SHAPES[shape_name]
    codes_a, a = random_operand(form_a, shape.dim, shape.depth, generator)
    codes_b, b = random_operand(form_b, shape.dim, shape.depth, generator)
    c = torch.randn((shape.dim, shape.dim), generator=generator)
    exact = a @ b.T + c.to(torch.float64)
    regs_a = registers_of(codes_a, FORMATS[form_a][0], shape)
    regs_b = registers_of(codes_b, FORMATS[form_b][0], shape)
    d = torch.empty((shape.dim**2 // 64, 64), dtype=torch.int32)
    run = getattr(shim, f"run_{name}")
    call(run, d, regs_a, regs_b, to_result(c))
    got = from_result(d, shape.dim).to(torch.float64)
    assert ((got - exact).abs() <= tolerance(a, b, c.to(torch.float64))).all()

    call(run, d, regs_a, regs_b, None)  # C is the constant
    constant = floats(torch.tensor([SPLAT])).to(torch.float64)
    got = from_result(d, shape.dim).to(torch.float64)
    assert (
        (got - (a @ b.T + constant)).abs() <= tolerance(a, b, constant.expand(shape.dim, shape.dim))
    ).all()


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


FORM_PAIRS = [(a, b) for a in CBSZ for b in CBSZ]


@pytest.mark.parametrize(("form_a", "form_b"), FORM_PAIRS)
@pytest.mark.parametrize("shape_name", ["16x16x128", "32x32x64"])
def test_every_block_has_its_own_scale(
    shim: ctypes.CDLL, shape_name: str, form_a: str, form_b: str
) -> None:
    case = scaled_case(shape_name, form_a, form_b, seed=3)
    dim = case["c"].shape[0]
    run = getattr(shim, f"run_scale_{shape_name}")
    for byte_a, byte_b in ((0, 0), (1, 3), (2, 1), (3, 2)):
        d = torch.empty((dim * dim // 64, 64), dtype=torch.int32)
        scale_a, scale_b = (
            scale_lanes(case["scale_a"], byte_a),
            scale_lanes(case["scale_b"], byte_b),
        )
        call(run, d, case["a"], case["b"], to_result(case["c"]), CBSZ[form_a], CBSZ[form_b], scale_a, byte_a, scale_b, byte_b)  # fmt: skip
        got = from_result(d, dim).to(torch.float64)
        assert ((got - case["exact"]).abs() <= case["tolerance"]).all()


@pytest.mark.parametrize(("form_a", "form_b"), FORM_PAIRS)
@pytest.mark.parametrize("shape_name", ["16x16x128", "32x32x64"])
def test_without_scales(shim: ctypes.CDLL, shape_name: str, form_a: str, form_b: str) -> None:
    case = scaled_case(shape_name, form_a, form_b, seed=4)
    dim = case["c"].shape[0]
    a, b, c = case["plain_a"], case["plain_b"], case["c"].to(torch.float64)
    d = torch.empty((dim * dim // 64, 64), dtype=torch.int32)
    run = getattr(shim, f"run_{shape_name}")
    call(run, d, case["a"], case["b"], to_result(case["c"]), CBSZ[form_a], CBSZ[form_b])
    got = from_result(d, dim).to(torch.float64)
    assert ((got - (a @ b.T + c)).abs() <= tolerance(a, b, c)).all()


@pytest.mark.parametrize(
    "codes", [(254, 0), (0, 254), (250, 3), (0, 100), (60, 60), (0, 0), (254, 254), (200, 190)]
)
def test_scales_beyond_f32s_exponents_count_by_their_sum(
    shim: ctypes.CDLL, codes: tuple[int, int]
) -> None:
    case = scaled_case("16x16x128", "fp8", "fp4", seed=5, spread=0)
    scale_a = torch.full((64,), codes[0], dtype=torch.int32)
    scale_b = torch.full((64,), codes[1], dtype=torch.int32)
    zero = torch.zeros((4, 64), dtype=torch.int32)
    d = torch.empty((4, 64), dtype=torch.int32)
    call(shim.run_scale_16x16x128, d, case["a"], case["b"], zero, 0, 4, scale_a, 0, scale_b, 0)
    got = from_result(d, 16)
    power = torch.tensor(codes[0] + codes[1] - 254)
    a, b = case["plain_a"], case["plain_b"]
    exact = torch.ldexp(a @ b.T, power)
    off = (
        torch.ldexp(tolerance(a, b, torch.zeros(16, 16, dtype=torch.float64)), power)
        + 4 * 2.0**-150
    )
    largest = 3.4028234663852886e38
    finite = exact.abs() < largest / 2
    assert ((got.to(torch.float64) - exact).abs() <= off)[finite].all()
    assert (
        not got[exact.abs() > 2 * largest].isfinite().any()
    )  # NaN when blocks of both signs overflow


def test_a_scale_of_255_makes_its_row_or_column_nan(shim: ctypes.CDLL) -> None:
    case = scaled_case("16x16x128", "fp8", "fp8", seed=6)
    case["scale_a"][5, 2] = 255
    case["scale_b"][11, 0] = 255
    d = torch.empty((4, 64), dtype=torch.int32)
    call(shim.run_scale_16x16x128, d, case["a"], case["b"], to_result(case["c"]), 0, 0, scale_lanes(case["scale_a"], 0), 0, scale_lanes(case["scale_b"], 0), 0)  # fmt: skip
    expected = torch.zeros((16, 16), dtype=torch.bool)
    expected[5, :] = True
    expected[:, 11] = True
    assert (from_result(d, 16).isnan() == expected).all()


def test_registers_may_overlap(shim: ctypes.CDLL) -> None:
    shape = SHAPES["16x16x32"]
    generator = torch.Generator().manual_seed(7)
    codes_a, _ = random_operand("bf16", 16, 32, generator)
    codes_b, _ = random_operand("bf16", 16, 32, generator)
    c = torch.randn((16, 16), generator=generator)
    separate = torch.empty((4, 64), dtype=torch.int32)
    operands = [registers_of(codes_a, 16, shape), registers_of(codes_b, 16, shape), to_result(c)]
    call(shim.run_mfma_f32_16x16x32_bf16, separate, *operands)
    for overlapped in range(3):
        copies = [o.clone() for o in operands]
        call(shim.run_mfma_f32_16x16x32_bf16, copies[overlapped], *copies)
        assert (copies[overlapped] == separate).all()


@pytest.mark.parametrize("kind", ["", "_fnuz"])
@pytest.mark.parametrize("form", ["fp8", "bf8"])
def test_every_8_bit_code_is_multiplied_as_torch_decodes_it(
    shim: ctypes.CDLL, form: str, kind: str
) -> None:
    every = torch.arange(256, dtype=torch.int64)
    values = every.to(torch.uint8).view(FORMATS[form + kind][1]).to(torch.float32)
    shape = SHAPES["16x16x32"]
    one = int(torch.tensor(1.0).to(FORMATS[form + kind][1]).view(torch.uint8))
    for start in range(0, 256, 16):
        codes_a = torch.zeros((16, 32), dtype=torch.int64)
        codes_a[:, 13] = every[start : start + 16]
        codes_b = torch.zeros((16, 32), dtype=torch.int64)
        codes_b[:, 13] = one
        d = torch.empty((4, 64), dtype=torch.int32)
        zero = torch.zeros((4, 64), dtype=torch.int32)
        run = getattr(shim, f"run_mfma_f32_16x16x32_{form}_{form}{kind}")
        call(run, d, registers_of(codes_a, 8, shape), registers_of(codes_b, 8, shape), zero)
        got, expected = from_result(d, 16), values[start : start + 16, None].expand(16, 16)
        assert ((got == expected) | (got.isnan() & expected.isnan())).all()


def test_denormal_half_floats_count(shim: ctypes.CDLL) -> None:
    shape = SHAPES["16x16x16"]
    codes = torch.ones((16, 16), dtype=torch.int64)  # 2^-24 as f16, 2^-133 as bf16
    d = torch.empty((4, 64), dtype=torch.int32)
    zero = torch.zeros((4, 64), dtype=torch.int32)
    call(shim.run_mfma_f32_16x16x16_f16, d, *[registers_of(codes, 16, shape)] * 2, zero)
    assert (from_result(d, 16) == 16 * 2.0**-48).all()
    big = torch.full((16, 16), 0x7F00)  # 2^127 as bf16
    call(
        shim.run_mfma_f32_16x16x16_bf16,
        d,
        registers_of(codes, 16, shape),
        registers_of(big, 16, shape),
        zero,
    )
    assert (from_result(d, 16) == 16 * 2.0**-6).all()


def test_the_layouts_here_reach_every_element_once() -> None:
    for shape in SHAPES.values():
        reached = {
            (lane % shape.dim, shape.k_of(lane, e))
            for lane in range(64)
            for e in range(shape.per_lane())
        }
        assert len(reached) == shape.dim * shape.depth
    for dim in (16, 32):
        places = {result_place(dim, r, lane) for r in range(dim * dim // 64) for lane in range(64)}
        assert len(places) == dim * dim
    assert bits(torch.tensor([1.0])).tolist() == [0x3F800000]
