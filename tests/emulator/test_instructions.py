"""Single instructions against what the CDNA3 and CDNA4 ISA documents say of them.

Every expected value is written down or worked out here with Python's integers, ``struct`` or `math`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from asm_kit import ALL, LANES, Machine, Result, Snippet

OLD = 0xAAAA5555  # what a register holds that must stay
EVEN = 0x5555555555555555


def f32(value: float) -> int:
    """The bits of a float."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


@dataclass(frozen=True)
class Try:
    """A snippet and what must be true of its result."""

    snippet: Snippet
    check: Callable[[Result], None]
    archs: tuple[str, ...] = ("gfx942", "gfx950")


TRIES: dict[str, Try] = {}


def vector(name: str, text: str, inputs: dict[int, object], want: object, **more: object) -> None:
    """``text`` leaves ``want`` (64 values, or one for all lanes) in v10."""
    archs = more.pop("archs", ("gfx942", "gfx950"))
    values = [want] * 64 if isinstance(want, int) else list(want)  # type: ignore[call-overload]
    snippet = Snippet(text, vector={10: OLD, **inputs}, results=(10,), **more)  # type: ignore[arg-type]

    def check(result: Result) -> None:
        assert result.vector[10] == [v & 0xFFFFFFFF for v in values]

    TRIES[name] = Try(snippet, check, archs)  # type: ignore[arg-type]


def pair(name: str, text: str, inputs: dict[int, object], want: object, **more: object) -> None:
    """``text`` leaves 64-bit values in v[10:11]."""
    values = [want] * 64 if isinstance(want, int) else list(want)  # type: ignore[call-overload]
    snippet = Snippet(text, vector={10: OLD, 11: OLD, **inputs}, results=(10, 11), **more)  # type: ignore[arg-type]

    def check(result: Result) -> None:
        got = [low | high << 32 for low, high in zip(*result.vector.values(), strict=True)]
        assert got == [v & ALL for v in values]

    TRIES[name] = Try(snippet, check)


def scalar(
    name: str, text: str, inputs: dict[int, int], want: dict[int, int], **more: object
) -> None:
    """``text`` leaves ``want`` in scalar registers; s20 stands for SCC."""
    text += "\n  s_cselect_b32 s20, 1, 0"
    snippet = Snippet(text, scalar=inputs, scalars=tuple(want), **more)  # type: ignore[arg-type]

    def check(result: Result) -> None:
        assert result.scalar == want

    TRIES[name] = Try(snippet, check)


def masked(name: str, text: str, inputs: dict[int, object], want: int, **more: object) -> None:
    """``text`` leaves a lane mask in s[30:31]."""
    snippet = Snippet(text, vector=inputs, scalars=(30, 31), **more)  # type: ignore[arg-type]

    def check(result: Result) -> None:
        assert result.scalar[30] | result.scalar[31] << 32 == want

    TRIES[name] = Try(snippet, check)


def mask_of(condition: Callable[[int], bool]) -> int:
    """The bits of the lanes for which ``condition`` holds."""
    return sum(1 << n for n in LANES if condition(n))


# EXEC.
vector(
    "partial_exec_keeps_lanes",
    "v_add_u32 v10, 1, v1",
    {1: list(LANES)},
    [n + 1 if n % 2 == 0 else OLD for n in LANES],
    exec=EVEN,
)
vector("no_lane_on", "v_mov_b32 v10, 7", {}, OLD, exec=0)
masked(
    "compare_clears_inactive_lanes",
    "v_cmp_lt_u32 s[30:31], v1, v2",
    {1: 0, 2: 1},
    EVEN,
    exec=EVEN,
    scalar={30: 0xFFFFFFFF, 31: 0xFFFFFFFF},
)
masked(
    "carry_clears_inactive_lanes",
    "v_add_co_u32 v5, s[30:31], v1, v1",
    {1: 0x80000000},
    EVEN,
    exec=EVEN,
    scalar={30: 0xFFFFFFFF, 31: 0xFFFFFFFF},
)
vector(
    "writelane_ignores_exec",
    "v_writelane_b32 v10, s5, 3",
    {},
    [77 if n == 3 else OLD for n in LANES],
    scalar={5: 77},
    exec=0,
)
scalar(
    "readfirstlane_takes_the_first_active",
    "v_readfirstlane_b32 s5, v1",
    {},
    {5: 102},
    vector={1: [100 + n for n in LANES]},
    exec=0b1100,
)
scalar(
    "readfirstlane_without_lanes_takes_lane_0",
    "v_readfirstlane_b32 s5, v1",
    {},
    {5: 100},
    vector={1: [100 + n for n in LANES]},
    exec=0,
)
scalar(
    "readlane",
    "v_readlane_b32 s5, v1, s6",
    {6: 63},
    {5: 163},
    vector={1: [100 + n for n in LANES]},
    exec=0,
)

# Carries and 64 bits.
vector(
    "addc_takes_vcc",
    "v_addc_co_u32 v10, vcc, v1, v2, vcc",
    {1: 5, 2: 7},
    [13 if n % 2 == 0 else 12 for n in LANES],
    scalar={106: 0x55555555, 107: 0x55555555},
)
masked(
    "addc_carries_out",
    "v_addc_co_u32 v10, s[30:31], v1, v2, vcc",
    {1: 0xFFFFFFFF, 2: 0},
    EVEN,
    scalar={106: 0x55555555, 107: 0x55555555},
)
vector(
    "subbrev",
    "v_subbrev_co_u32 v10, vcc, v1, v2, vcc",
    {1: 5, 2: 3},
    [-3 if n % 2 == 0 else -2 for n in LANES],
    scalar={106: 0x55555555, 107: 0x55555555},
)
masked(
    "subb_borrows",
    "v_subb_co_u32 v10, s[30:31], v1, v2, vcc",
    {1: 3, 2: 3},
    EVEN,
    scalar={106: 0x55555555, 107: 0x55555555},
)
pair(
    "mad_u64_u32",
    "v_mad_u64_u32 v[10:11], vcc, v1, v2, v[4:5]",
    {1: 0xFFFFFFFF, 2: 0xFFFFFFFE, 4: 7, 5: 1},
    0xFFFFFFFF * 0xFFFFFFFE + (1 << 32 | 7),
)
masked(
    "mad_u64_u32_carries",
    "v_mad_u64_u32 v[10:11], s[30:31], v1, v2, v[4:5]",
    {1: 0xFFFFFFFF, 2: 0xFFFFFFFF, 4: 0xFFFFFFFF, 5: [0xFFFFFFFF if n < 5 else 0 for n in LANES]},
    mask_of(lambda n: n < 5),
)
pair(
    "overlapping_pairs",
    "v_lshlrev_b64 v[10:11], 4, v[10:11]",
    {10: 0x80000001, 11: 0xF},
    0xF800000010,
)
pair(
    "lshl_add_u64",
    "v_lshl_add_u64 v[10:11], v[2:3], 3, v[4:5]",
    {2: 0x20000000, 3: 1, 4: 5, 5: 0},
    (0x120000000 << 3) + 5,
)
pair("ashrrev_i64", "v_ashrrev_i64 v[10:11], 36, v[2:3]", {2: 0, 3: 0x80000000}, -(1 << 63) >> 36)
pair("mov_b64_of_a_constant", "v_mov_b64 v[10:11], -2", {}, -2)

# Bits and integers.
vector("bfe_u32", "v_bfe_u32 v10, v1, 8, 12", {1: 0xABCDEF12}, 0xDEF)
vector("bfe_i32", "v_bfe_i32 v10, v1, 8, 12", {1: 0xABCDEF12}, 0xFFFFFDEF)
vector("bfe_of_no_bits", "v_bfe_i32 v10, v1, 8, 0", {1: 0xABCDEF12}, 0)
vector("bfe_beyond_the_end", "v_bfe_i32 v10, v1, 28, 12", {1: 0x90000000}, 0xFFFFFFF9)
vector("bfi", "v_bfi_b32 v10, v1, v2, v3", {1: 0xFF00, 2: 0x1234, 3: 0xABCDEF}, 0xAB12EF)
vector(
    "perm", "v_perm_b32 v10, v1, v2, v3", {1: 0x87654321, 2: 0x0FEDCBA9, 3: 0x0C070D01}, 0x0087FFCB
)
vector(
    "perm_signs",
    "v_perm_b32 v10, v1, v2, v3",
    {1: 0x80007FFF, 2: 0x7FFF8000, 3: 0x0B0A0908},
    0xFF0000FF,
)
vector("alignbit", "v_alignbit_b32 v10, v1, v2, 36", {1: 0x12345678, 2: 0x9ABCDEF0}, 0x89ABCDEF)
vector("bcnt_adds", "v_bcnt_u32_b32 v10, v1, v2", {1: 0xF0F, 2: 100}, 108)
vector("bfrev", "v_bfrev_b32 v10, v1", {1: 0x00000013}, 0xC8000000)
vector("ffbh_of_zero", "v_ffbh_u32 v10, v1", {1: 0}, 0xFFFFFFFF)
vector("lshl_or", "v_lshl_or_b32 v10, v1, 36, v2", {1: 3, 2: 1}, 0x31)
vector("add_lshl", "v_add_lshl_u32 v10, v1, v2, 2", {1: 3, 2: 4}, 28)
vector("lshl_add", "v_lshl_add_u32 v10, v1, 2, v2", {1: 3, 2: 4}, 16)
vector("xad", "v_xad_u32 v10, v1, v2, v3", {1: 6, 2: 5, 3: 10}, 13)
vector("and_or", "v_and_or_b32 v10, v1, v2, v3", {1: 12, 2: 10, 3: 1}, 9)
vector("mul_hi_i32", "v_mul_hi_i32 v10, v1, v2", {1: -2, 2: 0x40000000}, -1)
vector("mul_i32_i24", "v_mul_i32_i24 v10, v1, v2", {1: 0x7FFFFFFE, 2: 3}, -6)
vector("mul_u32_u24", "v_mul_u32_u24 v10, v1, v2", {1: 0xFF000002, 2: 3}, 6)
vector(
    "mul_hi_u32_u24",
    "v_mul_hi_u32_u24 v10, v1, v2",
    {1: 0xFFFFFFFF, 2: 0xFFFFFF},
    0xFFFFFF**2 >> 32,
)
vector("med3_i32", "v_med3_i32 v10, v1, v2, v3", {1: -5, 2: 7, 3: 1}, 1)
vector("med3_u32", "v_med3_u32 v10, v1, v2, v3", {1: -5, 2: 7, 3: 1}, 7)
vector("sub_u16_clears_the_upper_half", "v_sub_u16 v10, v1, v2", {1: 0x50001, 2: 3}, 0xFFFE)
vector("lshlrev_b16", "v_lshlrev_b16 v10, 17, v1", {1: 0xFFFF8001}, 0x0002)
vector("ashrrev_i16", "v_ashrrev_i16 v10, 4, v1", {1: 0x12348000}, 0xF800)
vector("mul_lo_u16", "v_mul_lo_u16 v10, v1, v2", {1: 0x11234, 2: 0x30010}, 0x2340)
vector("register_number_above_128_in_16_bits", "v_add_u16 v10, v200, v201", {200: 5, 201: 6}, 11)
vector(
    "mbcnt",
    "v_mbcnt_lo_u32_b32 v10, s5, 0\n  v_mbcnt_hi_u32_b32 v10, s6, v10",
    {},
    [bin(0x8000000F00000003 & ((1 << n) - 1)).count("1") for n in LANES],
    scalar={5: 3, 6: 0x8000000F},
)
vector(
    "cndmask_by_scalar_pair",
    "v_cndmask_b32 v10, v1, v2, s[6:7]",
    {1: 1, 2: 2},
    [2 if n == 40 else 1 for n in LANES],
    scalar={6: 0, 7: 1 << 8},
)
vector(
    "cndmask_with_sign_modifiers",
    "v_cndmask_b32 v10, |v1|, -v2, s[6:7]",
    {1: f32(-3), 2: f32(2)},
    [f32(-2) if n == 0 else f32(3) for n in LANES],
    scalar={6: 1, 7: 0},
)
vector("literal", "v_add_u32 v10, 0x12345678, v1", {1: 1}, 0x12345679)
vector("inline_integers", "v_sub_u32 v10, 64, v1", {1: -16}, 80)
vector(
    "bitop3",
    "v_bitop3_b32 v10, v1, v2, v3 bitop3:0x96",
    {1: 12, 2: 10, 3: 6},
    12 ^ 10 ^ 6,
    archs=("gfx950",),
)
vector(
    "bitop3_table_order",
    "v_bitop3_b32 v10, v1, v2, v3 bitop3:0x10",
    {1: 12, 2: 10, 3: 6},
    12 & ~10 & ~6,
    archs=("gfx950",),
)

# Comparisons.
masked(
    "cmp_gt_i32_by_sign",
    "v_cmp_gt_i32 s[30:31], v1, v2",
    {1: list(range(-32, 32)), 2: -1},
    mask_of(lambda n: n - 32 > -1),
)
masked(
    "cmp_gt_u32",
    "v_cmp_gt_u32 s[30:31], v1, v2",
    {1: list(range(-32, 32)), 2: 31},
    mask_of(lambda n: n < 32),
)
masked(
    "cmp_lt_i64",
    "v_cmp_lt_i64 s[30:31], v[2:3], v[4:5]",
    {2: 5, 3: -1, 4: 4, 5: [0 if n < 9 else -1 for n in LANES]},
    mask_of(lambda n: n < 9),
)
masked(
    "cmp_nlt_is_true_for_nan",
    "v_cmp_nlt_f32 s[30:31], v1, v2",
    {1: [0x7FC00000, f32(1), f32(3)] + [f32(1)] * 61, 2: f32(2)},
    0b101,
)
masked(
    "cmp_class_of_infinity_and_nan",
    "v_cmp_class_f32 s[30:31], v1, v2",
    {
        1: [0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0, 0x80000000, 1, f32(1)]
        + [f32(2)] * 56,
        2: 0x207,
    },
    0b1111,
)
vector(
    "cmp_to_vcc",
    "v_cmp_eq_u32 vcc, 3, v1\n  v_cndmask_b32 v10, v2, v3, vcc",
    {1: list(LANES), 2: 0, 3: 1},
    [int(n == 3) for n in LANES],
)
masked("cmp_eq_u16_reads_half", "v_cmp_eq_u16 s[30:31], v1, v2", {1: 0x10005, 2: 0x20005}, ALL)
masked(
    "cmp_sdwa",
    "v_cmp_eq_u16_sdwa s[30:31], v1, v2 src0_sel:WORD_1 src1_sel:BYTE_3",
    {1: 0x00AB0000, 2: 0xAB000000},
    ALL,
)

# Floats.
vector("add_keeps_denormals", "v_add_f32 v10, v1, v2", {1: 1, 2: 2}, 3)
vector(
    "fma_rounds_once",
    "v_fma_f32 v10, v1, v2, v3",
    {1: f32(1 + 2**-23), 2: f32(1 - 2**-23), 3: f32(-1)},
    f32(-(2.0**-46)),
)
vector(
    "fmac_adds_to_its_result",
    "v_mov_b32 v10, 2.0\n  v_fmac_f32 v10, v1, v2",
    {1: f32(3), 2: f32(4)},
    f32(14),
)
vector("fmaak", "v_fmaak_f32 v10, v1, v2, 0x40400000", {1: f32(2), 2: f32(5)}, f32(13))
vector("fmamk", "v_fmamk_f32 v10, v1, 0x40400000, v2", {1: f32(2), 2: f32(5)}, f32(11))
vector("modifiers_of_sources", "v_add_f32 v10, -|v1|, v2", {1: f32(3), 2: f32(1)}, f32(-2))
vector("omod", "v_add_f32 v10, v1, v2 mul:4", {1: f32(3), 2: f32(1)}, f32(16))
vector(
    "clamp",
    "v_add_f32 v10, v1, v2 clamp",
    {1: [f32(3), f32(-3), f32(0.25), 0x7FC00000] + [0] * 60, 2: 0},
    [f32(1), 0, f32(0.25), 0] + [0] * 60,
)
vector("max_prefers_the_number", "v_max_f32 v10, v1, v2", {1: 0x7FC00000, 2: f32(-1)}, f32(-1))
vector("min_of_zeros", "v_min_f32 v10, v1, v2", {1: 0, 2: 0x80000000}, 0x80000000)
vector(
    "maximum3_of_nan_is_nan",
    "v_maximum3_f32 v10, v1, v2, v3",
    {1: f32(1), 2: 0x7FC00000, 3: f32(2)},
    0x7FC00000,
    archs=("gfx950",),
)
vector(
    "maximum3_abs",
    "v_maximum3_f32 v10, |v1|, |v2|, |v3|",
    {1: f32(-4), 2: f32(3), 3: f32(-2)},
    f32(4),
    archs=("gfx950",),
)
vector(
    "rndne",
    "v_rndne_f32 v10, v1",
    {1: [f32(2.5), f32(3.5), f32(-0.5)] + [0] * 61},
    [f32(2), f32(4), 0x80000000] + [0] * 61,
)
vector(
    "cvt_u32_f32_saturates",
    "v_cvt_u32_f32 v10, v1",
    {1: [f32(-1), f32(5e9), f32(3.99), 0x7FC00000] + [0] * 60},
    [0, 0xFFFFFFFF, 3, 0] + [0] * 60,
)
vector(
    "cvt_i32_f32_saturates",
    "v_cvt_i32_f32 v10, v1",
    {1: [f32(-3e9), f32(3e9), f32(-3.99)] + [0] * 61},
    [0x80000000, 0x7FFFFFFF, -3] + [0] * 61,
)
vector("cvt_f32_u32_rounds", "v_cvt_f32_u32 v10, v1", {1: 0xFFFFFFFF}, f32(4294967296.0))
vector("ldexp", "v_ldexp_f32 v10, v1, v2", {1: f32(3), 2: -1}, f32(1.5))
vector("inline_floats", "v_mul_f32 v10, 0.15915494, v1", {1: f32(1)}, 0x3E22F983)
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
vector(
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
pair(
    "pk_add_f32",
    "v_pk_add_f32 v[10:11], v[2:3], v[4:5]",
    {2: f32(1), 3: f32(2), 4: f32(10), 5: f32(20)},
    f32(11) | f32(22) << 32,
)
pair(
    "pk_mul_f32_selects_registers",
    "v_pk_mul_f32 v[10:11], v[2:3], v[4:5] op_sel:[1,0] op_sel_hi:[0,0]",
    {2: f32(2), 3: f32(3), 4: f32(5), 5: f32(7)},
    f32(15) | f32(10) << 32,
)
pair(
    "pk_fma_f32_signs",
    "v_pk_fma_f32 v[10:11], v[2:3], v[4:5], v[6:7] neg_lo:[1,0,0] neg_hi:[0,0,1]",
    {2: f32(2), 3: f32(3), 4: f32(5), 5: f32(7), 6: f32(1), 7: f32(4)},
    f32(-9) | f32(17) << 32,
)
pair(
    "pk_mov_b32",
    "v_pk_mov_b32 v[10:11], v[2:3], v[4:5] op_sel:[1,0]",
    {2: 1, 3: 2, 4: 3, 5: 4},
    2 | 3 << 32,
)
pair(
    "pk_overlapping",
    "v_pk_mul_f32 v[10:11], v[10:11], v[10:11] op_sel_hi:[1,0]",
    {10: f32(3), 11: f32(5)},
    f32(9) | f32(15) << 32,
)
vector(
    "pk_lshlrev_b16_of_a_constant",
    "v_pk_lshlrev_b16 v10, 3, v1 op_sel_hi:[0,1]",
    {1: 0x10002},
    0x80010,
)

# Conversions (their arithmetic is pinned in test_numeric_conversions.py; here: operands and halves).
vector(
    "cvt_pk_fp8_into_the_upper_half",
    "v_cvt_pk_fp8_f32 v10, v1, v2 op_sel:[0,0,1]",
    {1: f32(1), 2: f32(-2)},
    0xC0385555,
    archs=("gfx950",),
)
vector(
    "cvt_pk_fp8_is_fnuz_on_gfx942",
    "v_cvt_pk_fp8_f32 v10, v1, v2",
    {1: f32(1), 2: f32(-1e-9)},
    0xAAAA0040,
    archs=("gfx942",),
)
pair(
    "cvt_pk_f32_fp8_of_the_upper_half",
    "v_cvt_pk_f32_fp8_sdwa v[10:11], v1 src0_sel:WORD_1",
    {1: 0x48405555},
    f32(1) | f32(2) << 32,
)
TRIES["cvt_pk_f32_fp8_of_the_upper_half"] = Try(
    TRIES["cvt_pk_f32_fp8_of_the_upper_half"].snippet,
    TRIES["cvt_pk_f32_fp8_of_the_upper_half"].check,
    ("gfx942",),
)
vector(
    "cvt_pk_bf16_f32",
    "v_cvt_pk_bf16_f32 v10, v1, v2",
    {1: f32(1), 2: f32(-2)},
    0xC0003F80,
    archs=("gfx950",),
)
vector(
    "cvt_scalef32_fp4_byte",
    "v_cvt_scalef32_pk_bf16_fp4 v10, v1, v2 op_sel:[0,1,0]",
    {1: 0x00_A2_00_00, 2: f32(2)},
    0xC0004000,
    archs=("gfx950",),
)  # codes 2 and 10: 1 and -1, times 2
vector(
    "cvt_scalef32_to_fp4_byte",
    "v_cvt_scalef32_pk_fp4_f32 v10, v1, v2, v3 op_sel:[0,0,1,1]",
    {1: f32(2), 2: f32(-12), 3: f32(2)},
    0xF2AA5555,
    archs=("gfx950",),
)

# Lanes.
vector(
    "dpp_quad_perm",
    "v_mov_b32_dpp v10, v1 quad_perm:[3,2,1,0] row_mask:0xf bank_mask:0xf",
    {1: list(LANES)},
    [n ^ 3 for n in LANES],
)
vector(
    "dpp_into_its_own_register",
    "v_mov_b32_dpp v10, v10 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf",
    {10: list(LANES)},
    [n ^ 1 for n in LANES],
)
vector(
    "dpp_row_shr_with_banks",
    "v_mov_b32_dpp v10, v1 row_shr:4 row_mask:0xf bank_mask:0xa",
    {1: list(LANES)},
    [n - 4 if n // 4 % 4 in (1, 3) else OLD for n in LANES],
)
vector(
    "dpp_row_shl_keeps_lanes_without_source",
    "v_mov_b32_dpp v10, v1 row_shl:8 row_mask:0xf bank_mask:0xf",
    {1: list(LANES)},
    [n + 8 if n % 16 < 8 else OLD for n in LANES],
)
vector(
    "dpp_bound_ctrl_gives_zero",
    "v_mov_b32_dpp v10, v1 row_shl:8 row_mask:0xf bank_mask:0xf bound_ctrl:0",
    {1: list(LANES)},
    [n + 8 if n % 16 < 8 else 0 for n in LANES],
)
vector(
    "dpp_row_mask",
    "v_mov_b32_dpp v10, v1 row_ror:1 row_mask:0x5 bank_mask:0xf",
    {1: list(LANES)},
    [(n - n % 16) + (n - 1) % 16 if n // 16 in (0, 2) else OLD for n in LANES],
)
vector(
    "dpp_on_arithmetic",
    "v_add_f32_dpp v10, v1, v2 row_half_mirror row_mask:0xf bank_mask:0xf",
    {1: [f32(n) for n in LANES], 2: f32(1)},
    [f32((n ^ 7) + 1) for n in LANES],
)
vector(
    "dpp_from_a_lane_that_is_off",
    "v_mov_b32_dpp v10, v1 quad_perm:[1,1,1,1] row_mask:0xf bank_mask:0xf",
    {1: list(LANES)},
    OLD,
    exec=EVEN,
)
vector(
    "sdwa_selections",
    "v_add_u32_sdwa v10, v1, sext(v2) dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_2 src1_sel:BYTE_0",
    {1: 0x00120000, 2: 0xFF},
    0x00115555,
)
vector(
    "sdwa_pads_with_zero",
    "v_mov_b32_sdwa v10, v1 dst_sel:BYTE_1 dst_unused:UNUSED_PAD src0_sel:WORD_1",
    {1: 0x12345678},
    0x3400,
)
vector(
    "sdwa_pads_with_sign",
    "v_mov_b32_sdwa v10, v1 dst_sel:BYTE_1 dst_unused:UNUSED_SEXT src0_sel:WORD_1",
    {1: 0x12B45678},
    0xFFFFB400,
)
vector(
    "sdwa_order_of_sources",
    "v_sub_u16_sdwa v10, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD",
    {1: 0x00090000, 2: 2},
    7,
)
vector(
    "sdwa_scalar_source",
    "v_add_u32_sdwa v10, s5, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:DWORD",
    {2: 1},
    0x35,
    scalar={5: 0x1234 << 1 | 0x1000},
)
vector(
    "bpermute",
    "ds_bpermute_b32 v10, v1, v2\n  s_waitcnt lgkmcnt(0)",
    {1: [4 * (63 - n) for n in LANES], 2: list(LANES)},
    [63 - n for n in LANES],
    lds=256,
)
vector(
    "bpermute_from_lanes_that_are_off_is_zero",
    "ds_bpermute_b32 v10, v1, v2\n  s_waitcnt lgkmcnt(0)",
    {1: [4 * (n + 1) for n in LANES], 2: list(LANES)},
    [OLD if n % 2 else 0 for n in LANES],
    exec=EVEN,
    lds=256,
)
vector(
    "permute",
    "ds_permute_b32 v10, v1, v2\n  s_waitcnt lgkmcnt(0)",
    {1: [4 * (63 - n) for n in LANES], 2: list(LANES)},
    [63 - n for n in LANES],
    lds=256,
)
vector(
    "swizzle_xor",
    "ds_swizzle_b32 v10, v1 offset:0x401f\n  s_waitcnt lgkmcnt(0)",
    {1: list(LANES)},
    [n ^ 16 for n in LANES],
    lds=256,
)
vector(
    "swizzle_quad",
    "ds_swizzle_b32 v10, v1 offset:0x801b\n  s_waitcnt lgkmcnt(0)",
    {1: list(LANES)},
    [n ^ 3 for n in LANES],
    lds=256,
)


def _swap(width: int) -> Try:
    first, second = [100 + n for n in LANES], [200 + n for n in LANES]
    snippet = Snippet(
        f"v_permlane{width}_swap_b32 v10, v11", vector={10: first, 11: second}, results=(10, 11)
    )

    def check(result: Result) -> None:
        # The upper lanes of the first register change places with the lower ones of the second.
        assert result.vector[10] == [200 + n - width if n & width else 100 + n for n in LANES]
        assert result.vector[11] == [200 + n if n & width else 100 + n + width for n in LANES]

    return Try(snippet, check, ("gfx950",))


TRIES["permlane16_swap"] = _swap(16)
TRIES["permlane32_swap"] = _swap(32)

# Scalars.
scalar("add_u32_carries", "s_add_u32 s5, s6, s7", {6: 0xFFFFFFFF, 7: 2}, {5: 1, 20: 1})
scalar(
    "addc_u32",
    "s_add_u32 s5, s6, s6\n  s_addc_u32 s5, s7, s7",
    {6: 0x80000000, 7: 5},
    {5: 11, 20: 0},
)
scalar("add_i32_overflows", "s_add_i32 s5, s6, s7", {6: 0x7FFFFFFF, 7: 1}, {5: 0x80000000, 20: 1})
scalar("sub_u32_borrows", "s_sub_u32 s5, s6, s7", {6: 1, 7: 2}, {5: 0xFFFFFFFF, 20: 1})
scalar(
    "subb_u32",
    "s_sub_u32 s5, s6, s7\n  s_subb_u32 s5, s6, s7",
    {6: 1, 7: 2},
    {5: 0xFFFFFFFE, 20: 1},
)
scalar(
    "min_i32_sets_scc_for_the_first",
    "s_min_i32 s5, s6, s7",
    {6: 0xFFFFFFFF, 7: 2},
    {5: 0xFFFFFFFF, 20: 1},
)
scalar("max_u32", "s_max_u32 s5, s6, s7", {6: 1, 7: 2}, {5: 2, 20: 0})
scalar("mul_hi_i32", "s_mul_hi_i32 s5, s6, s7", {6: 0xFFFFFFFF, 7: 2}, {5: 0xFFFFFFFF})
scalar("bfe_u32_scalar", "s_bfe_u32 s5, s6, 0xc0008", {6: 0xABCDEF12}, {5: 0xDEF, 20: 1})
scalar("bfe_i32_scalar", "s_bfe_i32 s5, s6, 0xc0008", {6: 0xABCDEF12}, {5: 0xFFFFFDEF, 20: 1})
scalar("ashr_i32", "s_ashr_i32 s5, s6, 33", {6: 0x80000000}, {5: 0xC0000000, 20: 1})
scalar("lshl_b64", "s_lshl_b64 s[4:5], s[6:7], 33", {6: 3, 7: 0}, {4: 0, 5: 6, 20: 1})
scalar("and_b64_zero", "s_and_b64 s[4:5], s[6:7], 0", {6: 3, 7: 1}, {4: 0, 5: 0, 20: 0})
scalar("andn2_b64", "s_andn2_b64 s[4:5], s[6:7], 1", {6: 3, 7: 1}, {4: 2, 5: 1, 20: 1})
scalar("inline_minus_one_is_64_bits", "s_mov_b64 s[4:5], -1", {}, {4: 0xFFFFFFFF, 5: 0xFFFFFFFF})
scalar("lshl2_add", "s_lshl2_add_u32 s5, s6, s7", {6: 0x40000000, 7: 5}, {5: 5, 20: 1})
scalar("ff1_of_zero", "s_ff1_i32_b64 s5, s[6:7]", {6: 0, 7: 0}, {5: 0xFFFFFFFF})
scalar("ff1_b64", "s_ff1_i32_b64 s5, s[6:7]", {6: 0, 7: 4}, {5: 34})
scalar("bcnt1_b64", "s_bcnt1_i32_b64 s5, s[6:7]", {6: 0xF, 7: 1}, {5: 5, 20: 1})
scalar("brev_b32", "s_brev_b32 s5, s6", {6: 1}, {5: 0x80000000})
scalar("sext_i16", "s_sext_i32_i16 s5, s6", {6: 0x18000}, {5: 0xFFFF8000})
scalar("abs_i32", "s_abs_i32 s5, s6", {6: 0xFFFFFFFB}, {5: 5, 20: 1})
scalar("bitset", "s_mov_b32 s5, 0\n  s_bitset1_b32 s5, 35", {}, {5: 8})
scalar("movk_extends_the_sign", "s_movk_i32 s5, 0x8000", {}, {5: 0xFFFF8000})
scalar("addk", "s_mov_b32 s5, 3\n  s_addk_i32 s5, -5", {}, {5: 0xFFFFFFFE, 20: 0})
scalar("mulk", "s_mov_b32 s5, 3\n  s_mulk_i32 s5, -5", {}, {5: 0xFFFFFFF1})
scalar("cmpk_u32_does_not_extend", "s_mov_b32 s5, 0xffff\n  s_cmpk_eq_u32 s5, 0xffff", {}, {20: 1})
scalar("cmp_lt_i32", "s_cmp_lt_i32 s6, s7", {6: 0xFFFFFFFF, 7: 0}, {20: 1})
scalar("cmp_lg_u64", "s_cmp_lg_u64 s[4:5], s[6:7]", {4: 1, 5: 0, 6: 1, 7: 1}, {20: 1})
scalar("bitcmp1", "s_bitcmp1_b32 s6, 36", {6: 16}, {20: 1})
scalar("cselect", "s_cmp_eq_u32 0, 1\n  s_cselect_b32 s5, 7, 9", {}, {5: 9})
scalar(
    "and_saveexec",
    "s_and_saveexec_b64 s[4:5], s[6:7]\n  s_mov_b64 s[8:9], exec",
    {6: 0xF, 7: 0},
    {4: 0x55555555, 5: 0x55555555, 8: 5, 9: 0, 20: 1},
    exec=EVEN,
)
scalar(
    "andn2_saveexec_of_its_source",
    "s_andn2_saveexec_b64 s[4:5], s[4:5]\n  s_mov_b64 s[8:9], exec",
    {4: 0xF, 5: 0},
    {4: 0x55555555, 5: 0x55555555, 8: 0xA, 9: 0, 20: 1},
    exec=EVEN,
)
scalar(
    "branches_on_vcc_and_exec",
    """s_mov_b64 vcc, 0
  s_mov_b32 s5, 0
  s_cbranch_vccnz .Lbad
  s_cbranch_execz .Lbad
  s_mov_b64 exec, 0
  s_cbranch_execz .Lgood
.Lbad:
  s_mov_b32 s5, 1
.Lgood:
  s_or_b32 s5, s5, 4""",
    {},
    {5: 4},
)
scalar(
    "loop",
    """s_mov_b32 s5, 0
.Lagain:
  s_add_u32 s5, s5, 3
  s_cmp_lt_u32 s5, 10
  s_cbranch_scc1 .Lagain""",
    {},
    {5: 12},
)
scalar(
    "vector_follows_a_scalar_write_of_exec",
    "s_mov_b64 exec, 2\n  v_mov_b32 v1, 9\n  s_mov_b64 exec, -1\n  v_readlane_b32 s5, v1, 1\n  v_readlane_b32 s6, v1, 0",
    {},
    {5: 9, 6: 1},
    vector={1: 1},
)


@pytest.fixture(scope="module", params=["gfx942", "gfx950"])
def machine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Machine]:
    arch = str(request.param)
    snippets = {n: t.snippet for n, t in TRIES.items() if arch in t.archs}
    return arch, Machine(snippets, arch, tmp_path_factory.mktemp(arch))


@pytest.mark.parametrize("name", TRIES)
def test_an_instruction_does_what_its_document_says(
    machine: tuple[str, Machine], name: str
) -> None:
    arch, device = machine
    if arch not in TRIES[name].archs:
        pytest.skip(f"not an instruction of {arch}")
    TRIES[name].check(device.run(name))
