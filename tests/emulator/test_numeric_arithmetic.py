"""Floating-point rules of single instructions: NaN and zero, division, parts of a number, 2^x and log2."""

from __future__ import annotations

import ctypes
import math

import pytest
import torch
from shim_kit import (
    PRELUDE,
    bits,
    compile_shim,
    floats,
    nearest_even,
    run_map,
    same_or_both_nan,
    sweep,
)

# LLVM's expansion of an f32 division with denormals (AMDGPU back end), around v_rcp_f32's approximation; the
# argument z moves the reciprocal by up to one unit in the last place, as the hardware may be off by.
DIVISION = """
static uint32_t divide(float n, float d, int32_t error)
{
    int unused, flag;
    float ds = f32_div_scale(d, d, n, &unused), ns = f32_div_scale(n, d, n, &flag);
    float r = as_f32(as_u32(f32_rcp(ds)) + (uint32_t)error);
    float e0 = fmaf(-ds, r, 1.0f), r1 = fmaf(e0, r, r), q = ns * r1;
    float e1 = fmaf(-ds, q, ns), q1 = fmaf(e1, r1, q), e2 = fmaf(-ds, q1, ns);
    return as_u32(f32_div_fixup(f32_div_fmas(e2, r1, q1, flag), d, n));
}
static int post_scale(float value, float d, float n)
{
    int flag;
    (void)f32_div_scale(value, d, n, &flag);
    return flag;
}
static uint32_t scale(float value, float d, float n)
{
    int flag;
    return as_u32(f32_div_scale(value, d, n, &flag));
}
"""
UNARY = ("fract", "frexp_mantissa", "rcp", "sqrt", "rsq", "exp2", "log2", "clamp")
BINARY = ("min", "max", "minimum", "maximum")
TERNARY = ("min3", "max3", "med3", "minimum3", "maximum3")
SOURCE = (
    PRELUDE
    + DIVISION
    + "\n".join(
        [
            *(f"MAP({name}, as_u32(f32_{name}(X)))" for name in UNARY),
            *(f"MAP({name}, as_u32(f32_{name}(X, Y)))" for name in BINARY),
            *(f"MAP({name}, as_u32(f32_{name}(X, Y, Z)))" for name in TERNARY),
            "MAP(is_class, f32_is_class(X, y))",
            "MAP(frexp_exponent, f32_frexp_exponent(X))",
            "MAP(ldexp, as_u32(f32_ldexp(X, (int32_t)y)))",
            "MAP(divide, divide(X, Y, (int32_t)z))",
            "MAP(post_scale, post_scale(X, Y, Z))",
            "MAP(scale, scale(X, Y, Z))",
            "MAP(fmas, as_u32(f32_div_fmas(X, Y, Z, 1)))",
            "MAP(fmas_plain, as_u32(f32_div_fmas(X, Y, Z, 0)))",
            "MAP(fixup, as_u32(f32_div_fixup(X, Y, Z)))",
            "MAP(half_add, f16_add(x, y, (int)z))",
            "MAP(half_mul, f16_mul(x, y, (int)z))",
            "MAP(half_fma, f16_fma(x, y, z, 0))",
            "MAP(half_min, f16_min(x, y))",
            "MAP(half_max, f16_max(x, y))",
        ]
    )
)
INF, NAN = math.inf, math.nan
QUIET, SIGNALLING = 0x7FC00001, 0x7F800001


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return compile_shim(SOURCE, tmp_path_factory.mktemp("arithmetic"))


def of(*values: float) -> torch.Tensor:
    return bits(torch.tensor(values))


def codes(*values: int) -> torch.Tensor:
    return torch.tensor(values)


ONE, MINUS, ZERO, NEGATIVE_ZERO = 0x3F800000, 0xBF800000, 0, 0x80000000


@pytest.mark.parametrize(
    ("a", "b", "least", "greatest"),
    [
        (ONE, MINUS, MINUS, ONE),
        (ZERO, NEGATIVE_ZERO, NEGATIVE_ZERO, ZERO),
        (NEGATIVE_ZERO, ZERO, NEGATIVE_ZERO, ZERO),
        (QUIET, ONE, ONE, ONE),
        (ONE, QUIET, ONE, ONE),
        (SIGNALLING, ONE, SIGNALLING | 0x400000, SIGNALLING | 0x400000),
        (ONE, SIGNALLING, SIGNALLING | 0x400000, SIGNALLING | 0x400000),
        (0x7F800000, ONE, ONE, 0x7F800000),
        (0xFF800000, QUIET, 0xFF800000, 0xFF800000),
    ],
)
def test_minimum_and_maximum_prefer_numbers(
    shim: ctypes.CDLL, a: int, b: int, least: int, greatest: int
) -> None:
    assert run_map(shim, "min", codes(a), codes(b)).tolist() == [least]
    assert run_map(shim, "max", codes(a), codes(b)).tolist() == [greatest]


def test_ieee_2019_minimum_and_maximum_give_nan_for_any_nan(shim: ctypes.CDLL) -> None:
    for name in ("minimum", "maximum"):
        assert run_map(shim, name, codes(QUIET), codes(ONE)).tolist() == [QUIET]
        assert run_map(shim, name, codes(ONE), codes(SIGNALLING)).tolist() == [
            SIGNALLING | 0x400000
        ]
    assert run_map(shim, "minimum", codes(ZERO), codes(NEGATIVE_ZERO)).tolist() == [NEGATIVE_ZERO]
    assert run_map(shim, "maximum", codes(NEGATIVE_ZERO), codes(ZERO)).tolist() == [ZERO]
    assert run_map(shim, "maximum3", of(1.0, 3.0), of(2.0, NAN), of(-5.0, 9.0))[0] == of(2.0)
    assert floats(run_map(shim, "minimum3", of(1.0), of(NAN), of(9.0))).isnan().all()
    assert run_map(shim, "minimum3", of(1.0), of(-2.0), of(9.0)).tolist() == of(-2.0).tolist()


def test_of_three(shim: ctypes.CDLL) -> None:
    for a, b, c in ((1.0, 2.0, 3.0), (3.0, 1.0, 2.0), (2.0, 3.0, 1.0), (3.0, 2.0, 1.0)):
        assert floats(run_map(shim, "med3", of(a), of(b), of(c))).tolist() == [2.0]
        assert floats(run_map(shim, "min3", of(a), of(b), of(c))).tolist() == [1.0]
        assert floats(run_map(shim, "max3", of(a), of(b), of(c))).tolist() == [3.0]
    assert floats(run_map(shim, "med3", of(NAN), of(5.0), of(4.0))).tolist() == [4.0]


def test_clamp_turns_nan_to_zero(shim: ctypes.CDLL) -> None:
    got = run_map(shim, "clamp", of(-1.0, -0.0, 0.25, 7.0, INF, NAN))
    assert got.tolist() == of(0.0, 0.0, 0.25, 1.0, 1.0, 0.0).tolist()


def test_classes_have_one_bit_each(shim: ctypes.CDLL) -> None:
    values = codes(
        SIGNALLING,
        QUIET,
        0xFF800000,
        0xBF800000,
        0x80000001,
        0x80000000,
        0,
        1,
        0x00800000,
        0x7F800000,
    )
    for index in range(10):
        got = run_map(shim, "is_class", values, torch.full_like(values, 1 << index))
        assert got.tolist() == [int(i == index) for i in range(10)]


def test_parts_of_a_number_are_those_of_frexp(shim: ctypes.CDLL) -> None:
    every = sweep()
    values = floats(every)
    known = values.isfinite() & (values != 0)
    mantissa, exponent = torch.frexp(values.to(torch.float64))
    got = run_map(shim, "frexp_exponent", every)
    assert (got == (exponent.to(torch.int64) & 0xFFFFFFFF))[known].all()
    assert (got == 0)[~known].all()
    got = run_map(shim, "frexp_mantissa", every)
    assert (got == bits(mantissa.to(torch.float32)))[known].all()
    assert (got == every)[~known].all()


def test_ldexp_rounds_once(shim: ctypes.CDLL) -> None:
    every = sweep()[::3]
    for power in (0, 1, -1, 64, -64, 127, -126, -149, 277, 100000, -100000):
        got = run_map(shim, "ldexp", every, torch.full_like(every, power & 0xFFFFFFFF))
        limited = max(-600, min(600, power))
        exact = torch.ldexp(floats(every).to(torch.float64), torch.tensor(limited))
        assert same_or_both_nan(got, bits(exact.to(torch.float32))).all()


def test_fraction_is_what_is_left_above_the_floor(shim: ctypes.CDLL) -> None:
    got = run_map(shim, "fract", of(1.25, -1.25, 3.0, -1e-10))
    assert floats(got).tolist() == [0.25, 0.75, 0.0, 1.0]


def random_codes(count: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 2**32, (count,), generator=generator)


@pytest.mark.parametrize("error", [0, 1, -1])
def test_the_division_sequence_rounds_correctly(shim: ctypes.CDLL, error: int) -> None:
    special = torch.cat(
        [codes(0, 1, 2, 3, 0x7FFFFF, 0x800000, 0x800001, 0x7F7FFFFF, 0x7F800000, ONE), of(NAN)]
    )
    special = torch.cat([special, special | 0x80000000])
    first = [special.repeat_interleave(22), random_codes(400_000, 1)]
    second = [special.repeat(22), random_codes(400_000, 2)]
    # Quotients of every magnitude, most of them near the ends, and quotients that are denormal.
    n, d = random_codes(400_000, 3), random_codes(400_000, 4)
    first += [n & 0x07FFFFFF, n | 0x7E000000, n & 0x0CFFFFFF, n]
    second += [
        d,
        d & 0x07FFFFFF,
        (d & 0x07FFFFFF) | 0x40000000,
        (n & 0x7F800000) | (d & 0x807FFFFF),
    ]
    numerator, denominator = torch.cat(first), torch.cat(second)
    expected = bits(floats(numerator) / floats(denominator))
    got = run_map(
        shim, "divide", numerator, denominator, torch.full_like(numerator, error & 0xFFFFFFFF)
    )
    assert same_or_both_nan(got, expected).all()


def test_division_flags_large_quotients_and_denormal_ones(shim: ctypes.CDLL) -> None:
    # Exponents 96 apart; a quotient below 2^-126 (CDNA3 ISA, V_DIV_SCALE_F32).
    numerator = of(2.0**96, 2.0**95, 2.0**-100, 2.0**-56, 1.99 * 2.0**-57, 2.0, 2.0)
    denominator = of(1.0, 1.0, 1.0, 2.0**70, 2.0**70, 1.0, 0.0)
    got = run_map(shim, "post_scale", numerator, denominator, numerator)
    assert got.tolist() == [1, 0, 0, 0, 1, 0, 0]


def test_division_scales_by_the_document(shim: ctypes.CDLL) -> None:
    # The numerator of a denormal quotient; both of a tiny numerator, of a denormal denominator and of one
    # whose reciprocal is denormal; the denominator of a large quotient.
    numerator = of(2.0**-60, 2.0**-100, 2.0**-104, 2.0**-40, 2.0, 2.0**96)
    denominator = of(2.0**70, 2.0**7, 1.0, 2.0**-130, 2.0**127, 1.0)
    up, down = 2.0**64, 2.0**-64
    scaled = run_map(shim, "scale", numerator, denominator, numerator)
    assert (
        scaled.tolist()
        == bits(floats(numerator) * torch.tensor([up, 1.0, up, up, down, 1.0])).tolist()
    )
    scaled = run_map(shim, "scale", denominator, denominator, numerator)
    assert (
        scaled.tolist()
        == bits(floats(denominator) * torch.tensor([1.0, 1.0, up, up, down, up])).tolist()
    )


def test_scaling_down_and_adding_are_one_rounding(shim: ctypes.CDLL) -> None:
    # 1.5 and 2.5 units of the smallest denormal, less or more by a little that f32 itself cannot hold.
    quotient = of(
        1.5 * 2.0**-85, 1.5 * 2.0**-85, 2.5 * 2.0**-85, 2.5 * 2.0**-85, 2.0**40, INF, -INF
    )
    little = of(-(2.0**-70), 2.0**-70, -(2.0**-70), 2.0**-70, 1.0, 1.0, 1.0)
    other = of(*[2.0**-70] * 4, 0.0, 0.0, 0.0)
    got = run_map(shim, "fmas", little, other, quotient)
    assert got.tolist() == [1, 2, 2, 3, *of(2.0**104, INF, -INF).tolist()]
    assert run_map(shim, "fmas_plain", little, other, quotient).tolist() == quotient.tolist()


def test_fixup_repairs_the_special_quotients(shim: ctypes.CDLL) -> None:
    denominator = of(0.0, INF, -0.0, INF, -INF, 4.0, NAN, 1.0)
    numerator = of(0.0, INF, 3.0, -3.0, 0.0, -INF, 1.0, NAN)
    got = floats(run_map(shim, "fixup", of(*[NAN] * 8), denominator, numerator))
    assert got[:2].isnan().all()
    assert got[2:6].tolist() == [-INF, -0.0, -0.0, -INF]
    assert [math.copysign(1, v) for v in got[3:5].tolist()] == [-1.0, -1.0]
    assert got[6:].isnan().all()


def flushed(values: torch.Tensor) -> torch.Tensor:
    return torch.where(
        values.abs() < 2.0**-126, torch.copysign(torch.zeros_like(values), values), values
    )


def units_off(got: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest distance from exact f64 values, in f32 units in the last place."""
    _, exponent = torch.frexp(exact)
    unit = torch.ldexp(torch.ones_like(exact), torch.clamp(exponent - 1, min=-126) - 23)
    return float(((floats(got).to(torch.float64) - exact).abs() / unit).max())


@pytest.mark.parametrize("name", ["rcp", "sqrt", "rsq"])
def test_roots_and_reciprocals_are_good_to_half_a_unit(shim: ctypes.CDLL, name: str) -> None:
    every = torch.cat([sweep(), random_codes(200_000, 5)])
    x = flushed(floats(every)).to(torch.float64)
    exact = {"rcp": 1 / x, "sqrt": x.sqrt(), "rsq": 1 / x.sqrt()}[name]
    exact = flushed(exact)
    got = run_map(shim, name, every)
    known = exact.isfinite() & (exact != 0)
    assert units_off(got[known], exact[known]) <= 0.5001
    assert same_or_both_nan(got[~known], bits(exact[~known].to(torch.float32))).all()


def test_power_of_two(shim: ctypes.CDLL) -> None:
    x = torch.cat([torch.linspace(-151, 129, 300_001), floats(sweep())])
    got = run_map(shim, "exp2", bits(x))
    exact = flushed(torch.exp2(x.to(torch.float64)))
    known = exact.isfinite() & (exact != 0) & (exact < 3.4028235677973366e38)
    assert units_off(got[known], exact[known]) <= 0.501
    large = torch.where(exact >= 3.4028235677973366e38, torch.full_like(exact, INF), exact)
    assert same_or_both_nan(got[~known], bits(large[~known].to(torch.float32))).all()
    assert floats(run_map(shim, "exp2", of(-3.0, 0.0, 10.0, -126.0))).tolist() == [
        0.125,
        1.0,
        1024.0,
        2.0**-126,
    ]


def test_logarithm(shim: ctypes.CDLL) -> None:
    near_one = torch.linspace(0.9, 1.1, 100_001)
    x = torch.cat([near_one, floats(sweep()), floats(random_codes(200_000, 6))])
    got = run_map(shim, "log2", bits(x))
    exact = torch.log2(flushed(x).to(torch.float64))
    known = exact.isfinite() & (exact != 0)
    assert units_off(got[known], exact[known]) <= 0.501
    assert same_or_both_nan(got[~known], bits(exact[~known].to(torch.float32))).all()
    assert floats(run_map(shim, "log2", of(8.0, 1.0, 0.0, -0.0))).tolist() == [3.0, 0.0, -INF, -INF]
    assert floats(run_map(shim, "log2", of(-1.0))).isnan().all()


def half(code: torch.Tensor) -> torch.Tensor:
    return code.to(torch.int32).to(torch.uint16).view(torch.float16).to(torch.float64)


def test_half_precision_rounds_once(shim: ctypes.CDLL) -> None:
    a, b, c = (random_codes(500_000, seed) & 0xFFFF for seed in (7, 8, 9))
    x, y, z = half(a), half(b), half(c)
    for name, exact in (("half_add", x + y), ("half_mul", x * y), ("half_fma", x * y + z)):
        third = c if name == "half_fma" else torch.zeros_like(a)
        got = half(run_map(shim, name, a, b, third))
        expected = nearest_even(exact, 10, -14)
        expected = torch.where(
            expected.abs() > 65504, torch.copysign(torch.full_like(expected, INF), exact), expected
        )
        nan = exact.isnan()
        assert (got == expected)[~nan].all()
        assert got[nan].isnan().all()
    overflow = torch.tensor([0x7BFF])
    assert run_map(shim, "half_add", overflow, overflow, torch.ones_like(overflow)).tolist() == [
        0x7BFF
    ]
    assert run_map(shim, "half_mul", overflow, overflow, torch.zeros_like(overflow)).tolist() == [
        0x7C00
    ]


def test_half_precision_minimum_and_maximum(shim: ctypes.CDLL) -> None:
    a, b = codes(0x3C00, 0x8000, 0x7E00, 0xC000), codes(0xC000, 0x0000, 0x3C00, 0x7E00)
    assert run_map(shim, "half_min", a, b).tolist() == [0xC000, 0x8000, 0x3C00, 0xC000]
    assert run_map(shim, "half_max", a, b).tolist() == [0x3C00, 0x0000, 0x3C00, 0xC000]
