"""Vector integers, masks, carries and comparisons, against the CDNA3 and CDNA4 ISA documents.

Every expected value is written down or worked out here with Python's integers, ``struct`` or ``math``.
"""

from __future__ import annotations

import pytest
from asm_kit import ALL, LANES, Machine
from tries_kit import EVEN, OLD, Tries, f32, machines, mask_of, names

TRIES = Tries()

# EXEC.
TRIES.vector(
    "partial_exec_keeps_lanes",
    "v_add_u32 v10, 1, v1",
    {1: list(LANES)},
    [n + 1 if n % 2 == 0 else OLD for n in LANES],
    exec=EVEN,
)
TRIES.vector("no_lane_on", "v_mov_b32 v10, 7", {}, OLD, exec=0)
TRIES.masked(
    "compare_clears_inactive_lanes",
    "v_cmp_lt_u32 s[30:31], v1, v2",
    {1: 0, 2: 1},
    EVEN,
    exec=EVEN,
    scalar={30: 0xFFFFFFFF, 31: 0xFFFFFFFF},
)
TRIES.masked(
    "carry_clears_inactive_lanes",
    "v_add_co_u32 v5, s[30:31], v1, v1",
    {1: 0x80000000},
    EVEN,
    exec=EVEN,
    scalar={30: 0xFFFFFFFF, 31: 0xFFFFFFFF},
)
TRIES.vector(
    "writelane_ignores_exec",
    "v_writelane_b32 v10, s5, 3",
    {},
    [77 if n == 3 else OLD for n in LANES],
    scalar={5: 77},
    exec=0,
)
TRIES.scalar(
    "readfirstlane_takes_the_first_active",
    "v_readfirstlane_b32 s5, v1",
    {},
    {5: 102},
    vector={1: [100 + n for n in LANES]},
    exec=0b1100,
)
TRIES.scalar(
    "readfirstlane_without_lanes_takes_lane_0",
    "v_readfirstlane_b32 s5, v1",
    {},
    {5: 100},
    vector={1: [100 + n for n in LANES]},
    exec=0,
)
TRIES.scalar(
    "readlane",
    "v_readlane_b32 s5, v1, s6",
    {6: 63},
    {5: 163},
    vector={1: [100 + n for n in LANES]},
    exec=0,
)

# Carries and 64 bits.
TRIES.vector(
    "addc_takes_vcc",
    "v_addc_co_u32 v10, vcc, v1, v2, vcc",
    {1: 5, 2: 7},
    [13 if n % 2 == 0 else 12 for n in LANES],
    scalar={106: 0x55555555, 107: 0x55555555},
)
TRIES.masked(
    "addc_carries_out",
    "v_addc_co_u32 v10, s[30:31], v1, v2, vcc",
    {1: 0xFFFFFFFF, 2: 0},
    EVEN,
    scalar={106: 0x55555555, 107: 0x55555555},
)
TRIES.vector(
    "subbrev",
    "v_subbrev_co_u32 v10, vcc, v1, v2, vcc",
    {1: 5, 2: 3},
    [-3 if n % 2 == 0 else -2 for n in LANES],
    scalar={106: 0x55555555, 107: 0x55555555},
)
TRIES.masked(
    "subb_borrows",
    "v_subb_co_u32 v10, s[30:31], v1, v2, vcc",
    {1: 3, 2: 3},
    EVEN,
    scalar={106: 0x55555555, 107: 0x55555555},
)
TRIES.pair(
    "mad_u64_u32",
    "v_mad_u64_u32 v[10:11], vcc, v1, v2, v[4:5]",
    {1: 0xFFFFFFFF, 2: 0xFFFFFFFE, 4: 7, 5: 1},
    0xFFFFFFFF * 0xFFFFFFFE + (1 << 32 | 7),
)
TRIES.masked(
    "mad_u64_u32_carries",
    "v_mad_u64_u32 v[10:11], s[30:31], v1, v2, v[4:5]",
    {1: 0xFFFFFFFF, 2: 0xFFFFFFFF, 4: 0xFFFFFFFF, 5: [0xFFFFFFFF if n < 5 else 0 for n in LANES]},
    mask_of(lambda n: n < 5),
)
TRIES.pair(
    "overlapping_pairs",
    "v_lshlrev_b64 v[10:11], 4, v[10:11]",
    {10: 0x80000001, 11: 0xF},
    0xF800000010,
)
TRIES.pair(
    "lshl_add_u64",
    "v_lshl_add_u64 v[10:11], v[2:3], 3, v[4:5]",
    {2: 0x20000000, 3: 1, 4: 5, 5: 0},
    (0x120000000 << 3) + 5,
)
TRIES.pair(
    "ashrrev_i64", "v_ashrrev_i64 v[10:11], 36, v[2:3]", {2: 0, 3: 0x80000000}, -(1 << 63) >> 36
)
TRIES.pair("mov_b64_of_a_constant", "v_mov_b64 v[10:11], -2", {}, -2)

# Bits and integers.
TRIES.vector("bfe_u32", "v_bfe_u32 v10, v1, 8, 12", {1: 0xABCDEF12}, 0xDEF)
TRIES.vector("bfe_i32", "v_bfe_i32 v10, v1, 8, 12", {1: 0xABCDEF12}, 0xFFFFFDEF)
TRIES.vector("bfe_of_no_bits", "v_bfe_i32 v10, v1, 8, 0", {1: 0xABCDEF12}, 0)
TRIES.vector("bfe_beyond_the_end", "v_bfe_i32 v10, v1, 28, 12", {1: 0x90000000}, 0xFFFFFFF9)
TRIES.vector("bfi", "v_bfi_b32 v10, v1, v2, v3", {1: 0xFF00, 2: 0x1234, 3: 0xABCDEF}, 0xAB12EF)
TRIES.vector(
    "perm", "v_perm_b32 v10, v1, v2, v3", {1: 0x87654321, 2: 0x0FEDCBA9, 3: 0x0C070D01}, 0x0087FFCB
)
TRIES.vector(
    "perm_signs",
    "v_perm_b32 v10, v1, v2, v3",
    {1: 0x80007FFF, 2: 0x7FFF8000, 3: 0x0B0A0908},
    0xFF0000FF,
)
TRIES.vector(
    "alignbit", "v_alignbit_b32 v10, v1, v2, 36", {1: 0x12345678, 2: 0x9ABCDEF0}, 0x89ABCDEF
)
TRIES.vector("bcnt_adds", "v_bcnt_u32_b32 v10, v1, v2", {1: 0xF0F, 2: 100}, 108)
TRIES.vector("bfrev", "v_bfrev_b32 v10, v1", {1: 0x00000013}, 0xC8000000)
TRIES.vector("ffbh_of_zero", "v_ffbh_u32 v10, v1", {1: 0}, 0xFFFFFFFF)
TRIES.vector("lshl_or", "v_lshl_or_b32 v10, v1, 36, v2", {1: 3, 2: 1}, 0x31)
TRIES.vector("add_lshl", "v_add_lshl_u32 v10, v1, v2, 2", {1: 3, 2: 4}, 28)
TRIES.vector("lshl_add", "v_lshl_add_u32 v10, v1, 2, v2", {1: 3, 2: 4}, 16)
TRIES.vector("xad", "v_xad_u32 v10, v1, v2, v3", {1: 6, 2: 5, 3: 10}, 13)
TRIES.vector("and_or", "v_and_or_b32 v10, v1, v2, v3", {1: 12, 2: 10, 3: 1}, 9)
TRIES.vector("mul_hi_i32", "v_mul_hi_i32 v10, v1, v2", {1: -2, 2: 0x40000000}, -1)
TRIES.vector("mul_i32_i24", "v_mul_i32_i24 v10, v1, v2", {1: 0x7FFFFFFE, 2: 3}, -6)
TRIES.vector("mul_u32_u24", "v_mul_u32_u24 v10, v1, v2", {1: 0xFF000002, 2: 3}, 6)
TRIES.vector(
    "mul_hi_u32_u24",
    "v_mul_hi_u32_u24 v10, v1, v2",
    {1: 0xFFFFFFFF, 2: 0xFFFFFF},
    0xFFFFFF**2 >> 32,
)
TRIES.vector("med3_i32", "v_med3_i32 v10, v1, v2, v3", {1: -5, 2: 7, 3: 1}, 1)
TRIES.vector("med3_u32", "v_med3_u32 v10, v1, v2, v3", {1: -5, 2: 7, 3: 1}, 7)
TRIES.vector("sub_u16_clears_the_upper_half", "v_sub_u16 v10, v1, v2", {1: 0x50001, 2: 3}, 0xFFFE)
TRIES.vector("lshlrev_b16", "v_lshlrev_b16 v10, 17, v1", {1: 0xFFFF8001}, 0x0002)
TRIES.vector("ashrrev_i16", "v_ashrrev_i16 v10, 4, v1", {1: 0x12348000}, 0xF800)
TRIES.vector("mul_lo_u16", "v_mul_lo_u16 v10, v1, v2", {1: 0x11234, 2: 0x30010}, 0x2340)
TRIES.vector(
    "register_number_above_128_in_16_bits", "v_add_u16 v10, v200, v201", {200: 5, 201: 6}, 11
)
TRIES.vector(
    "mbcnt",
    "v_mbcnt_lo_u32_b32 v10, s5, 0\n  v_mbcnt_hi_u32_b32 v10, s6, v10",
    {},
    [bin(0x8000000F00000003 & ((1 << n) - 1)).count("1") for n in LANES],
    scalar={5: 3, 6: 0x8000000F},
)
TRIES.vector(
    "cndmask_by_scalar_pair",
    "v_cndmask_b32 v10, v1, v2, s[6:7]",
    {1: 1, 2: 2},
    [2 if n == 40 else 1 for n in LANES],
    scalar={6: 0, 7: 1 << 8},
)
TRIES.vector(
    "cndmask_with_sign_modifiers",
    "v_cndmask_b32 v10, |v1|, -v2, s[6:7]",
    {1: f32(-3), 2: f32(2)},
    [f32(-2) if n == 0 else f32(3) for n in LANES],
    scalar={6: 1, 7: 0},
)
TRIES.vector("literal", "v_add_u32 v10, 0x12345678, v1", {1: 1}, 0x12345679)
TRIES.vector("inline_integers", "v_sub_u32 v10, 64, v1", {1: -16}, 80)
TRIES.vector(
    "bitop3",
    "v_bitop3_b32 v10, v1, v2, v3 bitop3:0x96",
    {1: 12, 2: 10, 3: 6},
    12 ^ 10 ^ 6,
    archs=("gfx950",),
)
TRIES.vector(
    "bitop3_table_order",
    "v_bitop3_b32 v10, v1, v2, v3 bitop3:0x10",
    {1: 12, 2: 10, 3: 6},
    12 & ~10 & ~6,
    archs=("gfx950",),
)

# Comparisons.
TRIES.masked(
    "cmp_gt_i32_by_sign",
    "v_cmp_gt_i32 s[30:31], v1, v2",
    {1: list(range(-32, 32)), 2: -1},
    mask_of(lambda n: n - 32 > -1),
)
TRIES.masked(
    "cmp_gt_u32",
    "v_cmp_gt_u32 s[30:31], v1, v2",
    {1: list(range(-32, 32)), 2: 31},
    mask_of(lambda n: n < 32),
)
TRIES.masked(
    "cmp_lt_i64",
    "v_cmp_lt_i64 s[30:31], v[2:3], v[4:5]",
    {2: 5, 3: -1, 4: 4, 5: [0 if n < 9 else -1 for n in LANES]},
    mask_of(lambda n: n < 9),
)
TRIES.masked(
    "cmp_nlt_is_true_for_nan",
    "v_cmp_nlt_f32 s[30:31], v1, v2",
    {1: [0x7FC00000, f32(1), f32(3)] + [f32(1)] * 61, 2: f32(2)},
    0b101,
)
TRIES.masked(
    "cmp_class_of_infinity_and_nan",
    "v_cmp_class_f32 s[30:31], v1, v2",
    {
        1: [0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0, 0x80000000, 1, f32(1)]
        + [f32(2)] * 56,
        2: 0x207,
    },
    0b1111,
)
TRIES.vector(
    "cmp_to_vcc",
    "v_cmp_eq_u32 vcc, 3, v1\n  v_cndmask_b32 v10, v2, v3, vcc",
    {1: list(LANES), 2: 0, 3: 1},
    [int(n == 3) for n in LANES],
)
TRIES.masked(
    "cmp_eq_u16_reads_half", "v_cmp_eq_u16 s[30:31], v1, v2", {1: 0x10005, 2: 0x20005}, ALL
)
TRIES.masked(
    "cmp_sdwa",
    "v_cmp_eq_u16_sdwa s[30:31], v1, v2 src0_sel:WORD_1 src1_sel:BYTE_3",
    {1: 0x00AB0000, 2: 0xAB000000},
    ALL,
)


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Machine]:
    return machines(TRIES, tmp_path_factory.mktemp("code"))


@pytest.mark.parametrize(("arch", "name"), names(TRIES))
def test_an_instruction_does_what_its_document_says(
    devices: dict[str, Machine], arch: str, name: str
) -> None:
    TRIES[name].check(devices[arch].run(name))
