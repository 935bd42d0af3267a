"""Matrix instructions against f64 products, through the layouts of matrix_kit."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest
import torch
from matrix_kit import (
    CBSZ,
    FORMATS,
    SHAPES,
    from_result,
    random_operand,
    registers_of,
    result_place,
    scale_lanes,
    scaled_case,
    to_result,
    tolerance,
)
from shim_kit import compile_shim, floats

SPLAT = 0x40490FDB


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


def call(function: Callable[..., object], *arguments: torch.Tensor | int | None) -> None:
    function(
        *(ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else a for a in arguments)
    )


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
