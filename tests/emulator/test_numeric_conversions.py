"""Conversion instructions against exact arithmetic and literals of the ISA documents' rules."""

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
    words,
)

SMALL = {
    "E4M3": torch.float8_e4m3fn,
    "E5M2": torch.float8_e5m2,
    "E4M3_FNUZ": torch.float8_e4m3fnuz,
    "E5M2_FNUZ": torch.float8_e5m2fnuz,
}
FP4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
FP4_BY_CODE = torch.cat([FP4, -FP4])

SOURCE = PRELUDE + "\n".join(
    [
        "MAP(to_i32, f32_to_i32(X))",
        "MAP(to_u32, f32_to_u32(X))",
        "MAP(to_i32_up, f32_to_i32_nearest_up(X))",
        "MAP(to_i32_floor, f32_to_i32_floor(X))",
        "MAP(offset, as_u32(i4_to_f32_offset(x)))",
        "MAP(i16_saturated, i32_to_i16_saturated((int32_t)x))",
        "MAP(u16_saturated, u32_to_u16_saturated(x))",
        "MAP(pk_bf16, cvt_pk_bf16_f32(X, Y, 0))",
        "MAP(pk_f16, cvt_pk_f16_f32(X, Y, 0))",
        "MAP(pkrtz, cvt_pkrtz_f16_f32(X, Y))",
        *(
            f"MAP(pk_{f}_{half}, cvt_pk_small_f32({f}, z, {half}, X, Y, 0))"
            for f in SMALL
            for half in (0, 1)
        ),
        *(
            f"MAP(unpack_{f}_{half}_{e}, as_u32(small_to_f32({f}, small_code_at({f}, x, {half}, {e}))))"
            for f in SMALL
            for half in (0, 1)
            for e in (0, 1)
        ),
        *(
            f"MAP(scaled_{f}, as_u32(cvt_scalef32_f32_small({f}, x, 0, 0, y)))"
            for f in (*SMALL, "E2M1")
        ),
        *(
            f"MAP(scaled_E2M1_at_{part}_{e}, as_u32(cvt_scalef32_f32_small(E2M1, x, {part}, {e}, y)))"
            for part in range(4)
            for e in (0, 1)
        ),
        "MAP(bf16_of_fp8, cvt_scalef32_pk_bf16_small(E4M3, x, z, y, 0))",
        "MAP(bf16_of_fp4, cvt_scalef32_pk_bf16_small(E2M1, x, z, y, 0))",
        *(
            f"MAP(fp4_of_f32_{part}, cvt_scalef32_pk_small_f32(E2M1, 0xabcdef01u, {part}, X, Y, z, 0))"
            for part in range(4)
        ),
        *(
            f"MAP(fp8_of_f32_{part}, cvt_scalef32_pk_small_f32(E4M3, 0xabcdef01u, {part}, X, Y, z, 0))"
            for part in range(2)
        ),
        "MAP(fp4_of_bf16, cvt_scalef32_pk_small_bf16(E2M1, y, 2, x, z, 0))",
        "MAP(fp4_of_f16, cvt_scalef32_pk_small_f16(E2M1, y, 2, x, z, 0))",
    ]
)


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return compile_shim(SOURCE, tmp_path_factory.mktemp("conversions"))


def of(*values: float) -> torch.Tensor:
    return bits(torch.tensor(values))


def test_floats_become_integers_by_truncation_and_saturate(shim: ctypes.CDLL) -> None:
    inf, nan = math.inf, math.nan
    values = (
        0.0,
        -0.0,
        0.99,
        -0.99,
        1.5,
        -1.5,
        2147483520.0,
        2147483648.0,
        -2147483648.0,
        -3e9,
        inf,
        -inf,
        nan,
    )
    signed = [0, 0, 0, 0, 1, -1, 2147483520, 2**31 - 1, -(2**31), -(2**31), 2**31 - 1, -(2**31), 0]
    assert run_map(shim, "to_i32", of(*values)).tolist() == [v & 0xFFFFFFFF for v in signed]
    values = (0.5, -0.5, 1.99, 4294967040.0, 4294967296.0, -1.0, inf, -inf, nan)
    unsigned = [0, 0, 1, 4294967040, 2**32 - 1, 0, 2**32 - 1, 0, 0]
    assert run_map(shim, "to_u32", of(*values)).tolist() == unsigned


def test_floats_become_integers_by_rounding_up_and_down(shim: ctypes.CDLL) -> None:
    values = of(0.5, 0.49999997, -0.5, -0.50000006, 1.5, 2.5, -2.5, 8388609.0, math.nan, math.inf)
    up = [1, 0, 0, -1, 2, 3, -2, 8388609, 0, 2**31 - 1]
    assert run_map(shim, "to_i32_up", values).tolist() == [v & 0xFFFFFFFF for v in up]
    down = [0, 0, -1, -1, 1, 2, -3, 8388609, 0, 2**31 - 1]
    assert run_map(shim, "to_i32_floor", values).tolist() == [v & 0xFFFFFFFF for v in down]


def test_small_integers_become_floats(shim: ctypes.CDLL) -> None:
    offsets = [i / 16 for i in range(8)] + [i / 16 for i in range(-8, 0)]
    assert floats(run_map(shim, "offset", torch.arange(16) | 0x730)).tolist() == offsets
    wide = words(
        torch.tensor([0, 32767, 32768, 2**31 - 1, -1, -32768, -32769, -(2**31)]) & 0xFFFFFFFF
    )
    expected = [0, 0x7FFF, 0x7FFF, 0x7FFF, 0xFFFF, 0x8000, 0x8000, 0x8000]
    assert run_map(shim, "i16_saturated", wide).tolist() == expected
    assert run_map(shim, "u16_saturated", wide).tolist() == [0, 32767, 32768, *[65535] * 5]


def test_packed_pairs_have_the_first_source_in_the_low_half(shim: ctypes.CDLL) -> None:
    first, second = of(1.0, -2.0, 65504.0), of(3.0, 0.1, 65519.0)
    assert run_map(shim, "pk_bf16", first, second).tolist() == [0x40403F80, 0x3DCDC000, 0x47804780]
    assert run_map(shim, "pk_f16", first, second).tolist() == [0x42003C00, 0x2E66C000, 0x7BFF7BFF]
    assert run_map(shim, "pkrtz", first, second).tolist() == [0x42003C00, 0x2E66C000, 0x7BFF7BFF]


def test_packed_fp8_leaves_the_other_half(shim: ctypes.CDLL) -> None:
    first, second = of(1.0, 448.0), of(-2.0, 0.0)
    old = torch.full((2,), 0x12345678)
    assert run_map(shim, "pk_E4M3_0", first, second, old).tolist() == [0x1234C038, 0x1234007E]
    assert run_map(shim, "pk_E4M3_1", first, second, old).tolist() == [0xC0385678, 0x007E5678]
    assert run_map(shim, "pk_E5M2_0", first, second, old).tolist() == [0x1234C03C, 0x1234005F]
    assert run_map(shim, "pk_E4M3_FNUZ_1", first, second, old).tolist() == [0xC8405678, 0x00805678]
    assert run_map(shim, "pk_E5M2_FNUZ_0", first, second, old).tolist() == [0x1234C440, 0x12340063]


@pytest.mark.parametrize("name", SMALL)
def test_unpacking_takes_the_selected_half(shim: ctypes.CDLL, name: str) -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    by_code = bits(codes.view(SMALL[name]).to(torch.float32))
    wide = codes.to(torch.int64)
    word = wide | (255 - wide) << 8 | (wide ^ 0x55) << 16 | (wide ^ 0xAA) << 24
    for half in (0, 1):
        for element in (0, 1):
            got = run_map(shim, f"unpack_{name}_{half}_{element}", word)
            picked = (word >> (16 * half + 8 * element)) & 0xFF
            assert same_or_both_nan(got, by_code[picked]).all()


def every_scale(codes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """All pairs of a code and a scale exponent 0 to 254, the scale's sign and mantissa being noise."""
    code = torch.arange(codes).repeat_interleave(255)
    exponent = torch.arange(255).repeat(codes)
    return code, exponent << 23 | (code * 0x12345) & 0x7FFFFF | (code & 1) << 31


@pytest.mark.parametrize("name", [*SMALL, "E2M1"])
def test_scaled_decoding_multiplies_by_the_scales_power_of_two(
    shim: ctypes.CDLL, name: str
) -> None:
    code, scale = every_scale(16 if name == "E2M1" else 256)
    if name == "E2M1":
        value = FP4_BY_CODE[code]
    else:
        value = code.to(torch.uint8).view(SMALL[name]).to(torch.float32)
    exact = torch.ldexp(value.to(torch.float64), ((scale >> 23) & 0xFF) - 127)
    got = run_map(shim, f"scaled_{name}", code, scale)
    assert same_or_both_nan(got, bits(exact.to(torch.float32))).all()


def test_scaled_decoding_of_fp4_takes_byte_and_nibble(shim: ctypes.CDLL) -> None:
    word = torch.tensor([0x89ABCDEF, 0x76543210])
    one = of(1.0, 1.0)
    for part in range(4):
        for element in (0, 1):
            got = floats(run_map(shim, f"scaled_E2M1_at_{part}_{element}", word, one))
            nibble = (word >> (8 * part + 4 * element)) & 0xF
            assert got.tolist() == FP4_BY_CODE[nibble].tolist()


def test_a_scale_with_the_largest_exponent_is_nan(shim: ctypes.CDLL) -> None:
    got = run_map(shim, "scaled_E4M3", torch.tensor([0x38]), torch.tensor([0x7F800000]))
    assert floats(got).isnan().all()
    one, largest = of(1.0), torch.tensor([0x7F800000])
    assert run_map(shim, "fp8_of_f32_0", one, one, largest).tolist() == [0xABCD7F7F]


def bf16_halves(pairs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return floats((pairs & 0xFFFF) << 16), floats(pairs & 0xFFFF0000)


def test_scaled_decoding_to_bf16_is_rounded_once(shim: ctypes.CDLL) -> None:
    code, scale = every_scale(256)
    word = code | 0x3800 | code << 24  # 1.0 beside it, and the code again in the upper half
    value = code.to(torch.uint8).view(torch.float8_e4m3fn).to(torch.float64)
    power = ((scale >> 23) & 0xFF) - 127
    exact = nearest_even(torch.ldexp(value, power), 7, -126).to(torch.float32)
    exact[exact.abs() > 3.3895313892515355e38] = math.inf
    exact = torch.copysign(exact, value.to(torch.float32))
    low, high = bf16_halves(run_map(shim, "bf16_of_fp8", word, scale, torch.zeros_like(word)))
    assert same_or_both_nan(bits(low), bits(exact)).all()
    unit = torch.ldexp(torch.ones_like(value), power).to(torch.float32)
    assert (high == torch.where(power == -127, floats(torch.tensor(0x00400000)), unit)).all()
    _, upper = bf16_halves(run_map(shim, "bf16_of_fp8", word, scale, torch.ones_like(word)))
    assert same_or_both_nan(bits(upper), bits(exact)).all()


def test_scaled_decoding_of_fp4_to_bf16(shim: ctypes.CDLL) -> None:
    word = torch.full((4,), 0x76543210)
    scale = of(4.0, 4.0, 4.0, 4.0)
    low, high = bf16_halves(run_map(shim, "bf16_of_fp4", word, scale, torch.arange(4)))
    assert low.tolist() == [0.0, 4.0, 8.0, 16.0]
    assert high.tolist() == [2.0, 6.0, 12.0, 24.0]


def test_scaled_encoding_divides_and_sets_one_byte(shim: ctypes.CDLL) -> None:
    # 12 / 4 = 3 is code 5; -20 / 4 = -5 is a tie between 4 and 6 and goes to the even code 6 (4.0).
    low, high, scale = of(12.0), of(-20.0), of(4.0 * 1.75)
    expected = [0xABCDEFE5, 0xABCDE501, 0xABE5EF01, 0xE5CDEF01]
    for part in range(4):
        assert run_map(shim, f"fp4_of_f32_{part}", low, high, scale).tolist() == [expected[part]]
    assert run_map(shim, "fp8_of_f32_0", low, high, scale).tolist() == [0xABCDCA44]
    assert run_map(shim, "fp8_of_f32_1", low, high, scale).tolist() == [0xCA44EF01]


def test_scaled_encoding_of_fp4_rounds_once_and_saturates(shim: ctypes.CDLL) -> None:
    codes = sweep()[::3]
    values = floats(codes)
    known = ~values.isnan()
    for exponent in (0, 1, 100, 127, 140, 253, 254):
        scale = torch.full_like(codes, exponent << 23)
        got = run_map(shim, "fp4_of_f32_0", codes, codes, scale)
        exact = torch.ldexp(values.to(torch.float64), torch.tensor(127 - exponent))
        expected = nearest_even(exact, 1, 0).clamp(-6.0, 6.0)
        assert (FP4_BY_CODE[got & 0xF].to(torch.float64) == expected)[known].all()
        assert ((got >> 4 & 0xF) == (got & 0xF)).all()
        assert ((got >> 3 & 1) == (codes >> 31 & 1)).all()


def test_scaled_encoding_from_16_bit_pairs(shim: ctypes.CDLL) -> None:
    scale, old = of(0.5), torch.tensor([0x11223344])
    bf16 = torch.tensor([0xC0003F80])  # 1.0 and -2.0
    assert run_map(shim, "fp4_of_bf16", bf16, old, scale).tolist() == [0x11E43344]
    f16 = torch.tensor([0xC0003C00])
    assert run_map(shim, "fp4_of_f16", f16, old, scale).tolist() == [0x11E43344]
