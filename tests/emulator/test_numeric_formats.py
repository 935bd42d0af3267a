"""Number formats against torch's types, and against rounding on the formats' own grids."""

from __future__ import annotations

import ctypes

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

# name: torch type, mantissa bits, exponent of the smallest normal number, largest code, overflow, NaN.
# Overflow and NaN are the rule of v_cvt_pk_fp8_f32 and v_cvt_pk_bf8_f32 with MODE.FP16_OVFL = 0 (CDNA3
# and CDNA4 ISA documents): no clamping, so NaN where the format has no infinity.
FORMATS = {
    "e4m3": (torch.float8_e4m3fn, 3, -6, 0x7E, 0x7F, 0x7F),
    "e5m2": (torch.float8_e5m2, 2, -14, 0x7B, 0x7C, 0x7F),
    "e4m3_fnuz": (torch.float8_e4m3fnuz, 3, -7, 0x7F, 0x80, 0x80),
    "e5m2_fnuz": (torch.float8_e5m2fnuz, 2, -15, 0x7F, 0x80, 0x80),
}
FP4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]  # OCP Microscaling specification, E2M1

SOURCE = PRELUDE + "\n".join(
    [
        *(f"MAP(decode_{name}, as_u32({name}_to_f32(x)))" for name in (*FORMATS, "e2m1", "e8m0")),
        *(f"MAP(encode_{name}, f32_to_{name}(X, (int)y))" for name in FORMATS),
        "MAP(encode_e2m1, f32_to_e2m1(X))",
        "MAP(decode_f16, as_u32(f16_to_f32(x)))",
        "MAP(decode_bf16, as_u32(bf16_to_f32(x)))",
        "MAP(encode_f16, f32_to_f16(X, (int)y))",
        "MAP(encode_bf16, f32_to_bf16(X, (int)y))",
        "MAP(encode_f16_toward_zero, f32_to_f16_toward_zero(X))",
    ]
)


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return compile_shim(SOURCE, tmp_path_factory.mktemp("formats"))


def table(dtype: torch.dtype) -> torch.Tensor:
    """The 256 values of an 8-bit torch type, by code."""
    return torch.arange(256, dtype=torch.uint8).view(dtype).to(torch.float32)


def halfway_cases(values: torch.Tensor) -> torch.Tensor:
    """f32 codes of the middles between neighbours of a format, and of the f32 on either side."""
    finite = values[values.isfinite()].to(torch.float64).unique()
    middles = bits(((finite[1:] + finite[:-1]) / 2).to(torch.float32))
    return torch.cat([middles, middles + 1, middles - 1]) & 0xFFFFFFFF


@pytest.mark.parametrize("name", FORMATS)
def test_every_8_bit_code_decodes_as_torch_has_it(shim: ctypes.CDLL, name: str) -> None:
    got = run_map(shim, f"decode_{name}", torch.arange(256))
    assert same_or_both_nan(got, bits(table(FORMATS[name][0]))).all()


def test_every_fp4_code_has_its_value(shim: ctypes.CDLL) -> None:
    got = run_map(shim, "decode_e2m1", torch.arange(16))
    assert got.tolist() == bits(torch.tensor(FP4 + [-v for v in FP4])).tolist()


def test_block_scales_are_powers_of_two_and_one_nan(shim: ctypes.CDLL) -> None:
    got = run_map(shim, "decode_e8m0", torch.arange(256))
    assert floats(got)[:255].tolist() == [2.0 ** (code - 127) for code in range(255)]
    assert floats(got)[255].isnan()
    assert same_or_both_nan(got, bits(table(torch.float8_e8m0fnu))).all()


@pytest.mark.parametrize("name", FORMATS)
def test_encoding_is_torchs_cast_where_neither_saturates(shim: ctypes.CDLL, name: str) -> None:
    dtype, mantissa, smallest, largest, *_ = FORMATS[name]
    codes = torch.cat([sweep(), halfway_cases(table(dtype))])
    values = floats(codes)
    rounded = nearest_even(values.abs().to(torch.float64), mantissa, smallest)
    known = rounded <= float(table(dtype)[largest])  # beyond, torch saturates or not by its version
    expected = values.to(dtype).view(torch.uint8).to(torch.int64)
    got = run_map(shim, f"encode_{name}", codes, torch.zeros_like(codes))
    assert (got == expected)[known].all()


@pytest.mark.parametrize("clamp", [0, 1])
@pytest.mark.parametrize("name", FORMATS)
def test_encoding_rounds_to_the_nearest_code_and_overflows_by_the_mode(
    shim: ctypes.CDLL, name: str, clamp: int
) -> None:
    dtype, mantissa, smallest, largest, overflow, nan = FORMATS[name]
    values_by_code = table(dtype).to(torch.float64)
    codes = torch.cat([sweep(), halfway_cases(table(dtype))])
    values = floats(codes)
    got = run_map(shim, f"encode_{name}", codes, torch.full_like(codes, clamp))
    sign = (codes >> 24) & 0x80
    too_large = nearest_even(values.abs().to(torch.float64), mantissa, smallest) > float(
        values_by_code[largest]
    )
    too_large |= values.isinf()
    if clamp:
        assert (got == (sign | largest))[too_large].all()
    else:
        assert (got == (overflow if overflow == 0x80 else sign | overflow))[too_large].all()
    assert (got == (nan if nan == 0x80 else sign | nan))[values.isnan()].all()
    rest = ~too_large & ~values.isnan()
    exact = nearest_even(values[rest].to(torch.float64), mantissa, smallest)
    assert (values_by_code[got[rest]] == exact).all()
    if "fnuz" in name:
        assert not (got[rest] == 0x80).any()  # a negative value that rounds to zero is +0
    else:
        assert ((got[rest] & 0x80) == sign[rest]).all()


def test_fnuz_literals(shim: ctypes.CDLL) -> None:
    values = torch.tensor([-0.0, -1e-9, -(2.0**-11), -(2.0**-10), 240.0, 247.9, 248.0, 1e9, -1e9])
    got = run_map(shim, "encode_e4m3_fnuz", bits(values))
    assert got.tolist() == [0x00, 0x00, 0x00, 0x81, 0x7F, 0x7F, 0x80, 0x80, 0x80]


def test_fp4_rounds_to_nearest_even_and_saturates(shim: ctypes.CDLL) -> None:
    cases = {
        0.0: 0, 0.25: 0, 0.2500001: 1, 0.5: 1, 0.75: 2, 1.0: 2, 1.25: 2, 1.3: 3, 1.75: 4, 2.0: 4,
        2.5: 4, 2.6: 5, 3.5: 6, 4.0: 6, 5.0: 6, 5.0000005: 7, 6.0: 7, 100.0: 7, float("inf"): 7,
    }  # fmt: skip
    values = torch.tensor(list(cases))
    got = run_map(shim, "encode_e2m1", bits(torch.cat([values, -values])))
    assert got.tolist() == [*cases.values(), *(c | 8 for c in cases.values())]


@pytest.mark.parametrize(("name", "dtype"), [("f16", torch.float16), ("bf16", torch.bfloat16)])
def test_16_bit_formats_are_torchs(shim: ctypes.CDLL, name: str, dtype: torch.dtype) -> None:
    every = torch.arange(65536)
    values = every.to(torch.int32).to(torch.uint16).view(dtype).to(torch.float32)
    assert same_or_both_nan(run_map(shim, f"decode_{name}", every), bits(values)).all()
    codes = torch.cat([sweep(), halfway_cases(values)])
    exact = floats(codes).to(dtype)
    got = run_map(shim, f"encode_{name}", codes, torch.zeros_like(codes))
    got_values = got.to(torch.int32).to(torch.uint16).view(dtype)
    same = got == (exact.view(torch.int16).to(torch.int64) & 0xFFFF)
    assert (same | (got_values.isnan() & exact.isnan())).all()
    assert (((got >> 15) & 1) == ((codes >> 31) & 1)).all()


@pytest.mark.parametrize(
    ("name", "largest", "first"), [("f16", 0x7BFF, 65520.0), ("bf16", 0x7F7F, 3.4e38)]
)
def test_overflow_of_16_bits_clamps_when_the_mode_asks(
    shim: ctypes.CDLL, name: str, largest: int, first: float
) -> None:
    infinity = 0x7C00 if name == "f16" else 0x7F80
    codes = bits(torch.tensor([first, -first, float("inf"), -float("inf")]))
    clamped = run_map(shim, f"encode_{name}", codes, torch.ones_like(codes)).tolist()
    assert clamped == [largest, largest | 0x8000, infinity, infinity | 0x8000]
    plain = run_map(shim, f"encode_{name}", codes, torch.zeros_like(codes)).tolist()
    assert plain == [infinity, infinity | 0x8000] * 2


def test_f16_toward_zero_never_grows(shim: ctypes.CDLL) -> None:
    codes = sweep()
    values = floats(codes)
    got = run_map(shim, "encode_f16_toward_zero", codes)
    result = got.to(torch.int32).to(torch.uint16).view(torch.float16).to(torch.float64)
    finite = values.isfinite()
    magnitude = values.abs().to(torch.float64)
    _, exponent = torch.frexp(magnitude)
    unit = torch.clamp(exponent - 1, min=-14) - 10
    exact = torch.ldexp(torch.floor(torch.ldexp(magnitude, -unit)), unit).clamp(max=65504.0)
    assert (result.abs() == exact)[finite].all()
    assert (((got >> 15) & 1) == ((codes >> 31) & 1)).all()
    assert result[values.isnan()].isnan().all()
    assert result[values.isinf()].isinf().all()
