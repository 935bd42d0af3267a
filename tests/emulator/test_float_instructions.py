"""Vector floats, packed floats and conversions, against the CDNA3 and CDNA4 ISA documents.

Every expected value is written down or worked out here with Python's integers, ``struct`` or ``math``.
"""

from __future__ import annotations

import struct

import pytest
from asm_kit import Machine
from tries_kit import Tries, f32, machines, names

TRIES = Tries()

# Floats.
TRIES.vector("add_keeps_denormals", "v_add_f32 v10, v1, v2", {1: 1, 2: 2}, 3)
TRIES.vector(
    "fma_rounds_once",
    "v_fma_f32 v10, v1, v2, v3",
    {1: f32(1 + 2**-23), 2: f32(1 - 2**-23), 3: f32(-1)},
    f32(-(2.0**-46)),
)
TRIES.vector(
    "fmac_adds_to_its_result",
    "v_mov_b32 v10, 2.0\n  v_fmac_f32 v10, v1, v2",
    {1: f32(3), 2: f32(4)},
    f32(14),
)
TRIES.vector("fmaak", "v_fmaak_f32 v10, v1, v2, 0x40400000", {1: f32(2), 2: f32(5)}, f32(13))
TRIES.vector("fmamk", "v_fmamk_f32 v10, v1, 0x40400000, v2", {1: f32(2), 2: f32(5)}, f32(11))
TRIES.vector("modifiers_of_sources", "v_add_f32 v10, -|v1|, v2", {1: f32(3), 2: f32(1)}, f32(-2))
TRIES.vector("omod", "v_add_f32 v10, v1, v2 mul:4", {1: f32(3), 2: f32(1)}, f32(16))
TRIES.vector(
    "clamp",
    "v_add_f32 v10, v1, v2 clamp",
    {1: [f32(3), f32(-3), f32(0.25), 0x7FC00000] + [0] * 60, 2: 0},
    [f32(1), 0, f32(0.25), 0] + [0] * 60,
)
TRIES.vector(
    "max_prefers_the_number", "v_max_f32 v10, v1, v2", {1: 0x7FC00000, 2: f32(-1)}, f32(-1)
)
TRIES.vector("min_of_zeros", "v_min_f32 v10, v1, v2", {1: 0, 2: 0x80000000}, 0x80000000)
TRIES.vector(
    "maximum3_of_nan_is_nan",
    "v_maximum3_f32 v10, v1, v2, v3",
    {1: f32(1), 2: 0x7FC00000, 3: f32(2)},
    0x7FC00000,
    archs=("gfx950",),
)
TRIES.vector(
    "maximum3_abs",
    "v_maximum3_f32 v10, |v1|, |v2|, |v3|",
    {1: f32(-4), 2: f32(3), 3: f32(-2)},
    f32(4),
    archs=("gfx950",),
)
TRIES.vector(
    "rndne",
    "v_rndne_f32 v10, v1",
    {1: [f32(2.5), f32(3.5), f32(-0.5)] + [0] * 61},
    [f32(2), f32(4), 0x80000000] + [0] * 61,
)
TRIES.vector(
    "cvt_u32_f32_saturates",
    "v_cvt_u32_f32 v10, v1",
    {1: [f32(-1), f32(5e9), f32(3.99), 0x7FC00000] + [0] * 60},
    [0, 0xFFFFFFFF, 3, 0] + [0] * 60,
)
TRIES.vector(
    "cvt_i32_f32_saturates",
    "v_cvt_i32_f32 v10, v1",
    {1: [f32(-3e9), f32(3e9), f32(-3.99)] + [0] * 61},
    [0x80000000, 0x7FFFFFFF, -3] + [0] * 61,
)
TRIES.vector("cvt_f32_u32_rounds", "v_cvt_f32_u32 v10, v1", {1: 0xFFFFFFFF}, f32(4294967296.0))
TRIES.vector("ldexp", "v_ldexp_f32 v10, v1, v2", {1: f32(3), 2: -1}, f32(1.5))
TRIES.vector("inline_floats", "v_mul_f32 v10, 0.15915494, v1", {1: f32(1)}, 0x3E22F983)
_DIVISION = """v_div_scale_f32 v3, vcc, v2, v2, v1
  v_div_scale_f32 v4, vcc, v1, v2, v1
  v_rcp_f32 v5, v3
  v_fma_f32 v6, -v3, v5, 1.0
  v_fma_f32 v5, v6, v5, v5
  v_mul_f32 v6, v4, v5
  v_fma_f32 v7, -v3, v6, v4
  v_fma_f32 v6, v7, v5, v6
  v_fma_f32 v3, -v3, v6, v4
  v_div_fmas_f32 v3, v3, v5, v6
  v_div_fixup_f32 v10, v3, v2, v1"""
_NUMERATORS = [1.0, 2.0, -3.0, 1e38, 1e-38, 5e-45, 3e38, 0.0] * 8
_DENOMINATORS = [3.0, 7e-39, 1e30, 3e-20, 2e38, 3.0, 1e-5, 5.0] * 8
TRIES.vector(
    "division_sequence",
    _DIVISION,
    {1: [f32(n) for n in _NUMERATORS], 2: [f32(d) for d in _DENOMINATORS]},
    [
        f32(
            min(
                struct.unpack("<f", struct.pack("<f", n))[0]
                / struct.unpack("<f", struct.pack("<f", d))[0],
                1e300,
            )
        )
        if abs(n / d) < 3.4e38
        else 0x7F800000
        for n, d in zip(_NUMERATORS, _DENOMINATORS, strict=True)
    ],
)
TRIES.pair(
    "pk_add_f32",
    "v_pk_add_f32 v[10:11], v[2:3], v[4:5]",
    {2: f32(1), 3: f32(2), 4: f32(10), 5: f32(20)},
    f32(11) | f32(22) << 32,
)
TRIES.pair(
    "pk_mul_f32_selects_registers",
    "v_pk_mul_f32 v[10:11], v[2:3], v[4:5] op_sel:[1,0] op_sel_hi:[0,0]",
    {2: f32(2), 3: f32(3), 4: f32(5), 5: f32(7)},
    f32(15) | f32(10) << 32,
)
TRIES.pair(
    "pk_fma_f32_signs",
    "v_pk_fma_f32 v[10:11], v[2:3], v[4:5], v[6:7] neg_lo:[1,0,0] neg_hi:[0,0,1]",
    {2: f32(2), 3: f32(3), 4: f32(5), 5: f32(7), 6: f32(1), 7: f32(4)},
    f32(-9) | f32(17) << 32,
)
TRIES.pair(
    "pk_mov_b32",
    "v_pk_mov_b32 v[10:11], v[2:3], v[4:5] op_sel:[1,0]",
    {2: 1, 3: 2, 4: 3, 5: 4},
    2 | 3 << 32,
)
TRIES.pair(
    "pk_overlapping",
    "v_pk_mul_f32 v[10:11], v[10:11], v[10:11] op_sel_hi:[1,0]",
    {10: f32(3), 11: f32(5)},
    f32(9) | f32(15) << 32,
)
TRIES.vector(
    "pk_lshlrev_b16_of_a_constant",
    "v_pk_lshlrev_b16 v10, 3, v1 op_sel_hi:[0,1]",
    {1: 0x10002},
    0x80010,
)

# Conversions (their arithmetic is pinned in test_numeric_conversions.py; here: operands and halves).
TRIES.vector(
    "cvt_pk_fp8_into_the_upper_half",
    "v_cvt_pk_fp8_f32 v10, v1, v2 op_sel:[0,0,1]",
    {1: f32(1), 2: f32(-2)},
    0xC0385555,
    archs=("gfx950",),
)
TRIES.vector(
    "cvt_pk_fp8_is_fnuz_on_gfx942",
    "v_cvt_pk_fp8_f32 v10, v1, v2",
    {1: f32(1), 2: f32(-1e-9)},
    0xAAAA0040,
    archs=("gfx942",),
)
TRIES.pair(
    "cvt_pk_f32_fp8_of_the_upper_half",
    "v_cvt_pk_f32_fp8_sdwa v[10:11], v1 src0_sel:WORD_1",
    {1: 0x48405555},
    f32(1) | f32(2) << 32,
    archs=("gfx942",),
)
TRIES.vector(
    "cvt_pk_bf16_f32",
    "v_cvt_pk_bf16_f32 v10, v1, v2",
    {1: f32(1), 2: f32(-2)},
    0xC0003F80,
    archs=("gfx950",),
)
TRIES.vector(
    "cvt_scalef32_fp4_byte",
    "v_cvt_scalef32_pk_bf16_fp4 v10, v1, v2 op_sel:[0,1,0]",
    {1: 0x00_A2_00_00, 2: f32(2)},
    0xC0004000,
    archs=("gfx950",),
)  # codes 2 and 10: 1 and -1, times 2
TRIES.vector(
    "cvt_scalef32_to_fp4_byte",
    "v_cvt_scalef32_pk_fp4_f32 v10, v1, v2, v3 op_sel:[0,0,1,1]",
    {1: f32(2), 2: f32(-12), 3: f32(2)},
    0xF2AA5555,
    archs=("gfx950",),
)


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Machine]:
    return machines(TRIES, tmp_path_factory.mktemp("code"))


@pytest.mark.parametrize(("arch", "name"), names(TRIES))
def test_an_instruction_does_what_its_document_says(
    devices: dict[str, Machine], arch: str, name: str
) -> None:
    TRIES[name].check(devices[arch].run(name))
