"""Scalar instructions, against the CDNA3 and CDNA4 ISA documents.

Every expected value is written down or worked out here with Python's integers, ``struct`` or ``math``.
"""

from __future__ import annotations

import pytest
from asm_kit import Machine
from tries_kit import EVEN, Tries, machines, names

TRIES = Tries()

# Scalars.
TRIES.scalar("add_u32_carries", "s_add_u32 s5, s6, s7", {6: 0xFFFFFFFF, 7: 2}, {5: 1, 20: 1})
TRIES.scalar(
    "addc_u32",
    "s_add_u32 s5, s6, s6\n  s_addc_u32 s5, s7, s7",
    {6: 0x80000000, 7: 5},
    {5: 11, 20: 0},
)
TRIES.scalar(
    "add_i32_overflows", "s_add_i32 s5, s6, s7", {6: 0x7FFFFFFF, 7: 1}, {5: 0x80000000, 20: 1}
)
TRIES.scalar("sub_u32_borrows", "s_sub_u32 s5, s6, s7", {6: 1, 7: 2}, {5: 0xFFFFFFFF, 20: 1})
TRIES.scalar(
    "subb_u32",
    "s_sub_u32 s5, s6, s7\n  s_subb_u32 s5, s6, s7",
    {6: 1, 7: 2},
    {5: 0xFFFFFFFE, 20: 1},
)
TRIES.scalar(
    "min_i32_sets_scc_for_the_first",
    "s_min_i32 s5, s6, s7",
    {6: 0xFFFFFFFF, 7: 2},
    {5: 0xFFFFFFFF, 20: 1},
)
TRIES.scalar("max_u32", "s_max_u32 s5, s6, s7", {6: 1, 7: 2}, {5: 2, 20: 0})
TRIES.scalar("mul_hi_i32", "s_mul_hi_i32 s5, s6, s7", {6: 0xFFFFFFFF, 7: 2}, {5: 0xFFFFFFFF})
TRIES.scalar("bfe_u32_scalar", "s_bfe_u32 s5, s6, 0xc0008", {6: 0xABCDEF12}, {5: 0xDEF, 20: 1})
TRIES.scalar("bfe_i32_scalar", "s_bfe_i32 s5, s6, 0xc0008", {6: 0xABCDEF12}, {5: 0xFFFFFDEF, 20: 1})
TRIES.scalar("ashr_i32", "s_ashr_i32 s5, s6, 33", {6: 0x80000000}, {5: 0xC0000000, 20: 1})
TRIES.scalar("lshl_b64", "s_lshl_b64 s[4:5], s[6:7], 33", {6: 3, 7: 0}, {4: 0, 5: 6, 20: 1})
TRIES.scalar("and_b64_zero", "s_and_b64 s[4:5], s[6:7], 0", {6: 3, 7: 1}, {4: 0, 5: 0, 20: 0})
TRIES.scalar("andn2_b64", "s_andn2_b64 s[4:5], s[6:7], 1", {6: 3, 7: 1}, {4: 2, 5: 1, 20: 1})
TRIES.scalar(
    "inline_minus_one_is_64_bits", "s_mov_b64 s[4:5], -1", {}, {4: 0xFFFFFFFF, 5: 0xFFFFFFFF}
)
TRIES.scalar("lshl2_add", "s_lshl2_add_u32 s5, s6, s7", {6: 0x40000000, 7: 5}, {5: 5, 20: 1})
TRIES.scalar("ff1_of_zero", "s_ff1_i32_b64 s5, s[6:7]", {6: 0, 7: 0}, {5: 0xFFFFFFFF})
TRIES.scalar("ff1_b64", "s_ff1_i32_b64 s5, s[6:7]", {6: 0, 7: 4}, {5: 34})
TRIES.scalar("bcnt1_b64", "s_bcnt1_i32_b64 s5, s[6:7]", {6: 0xF, 7: 1}, {5: 5, 20: 1})
TRIES.scalar("brev_b32", "s_brev_b32 s5, s6", {6: 1}, {5: 0x80000000})
TRIES.scalar("sext_i16", "s_sext_i32_i16 s5, s6", {6: 0x18000}, {5: 0xFFFF8000})
TRIES.scalar("abs_i32", "s_abs_i32 s5, s6", {6: 0xFFFFFFFB}, {5: 5, 20: 1})
TRIES.scalar("bitset", "s_mov_b32 s5, 0\n  s_bitset1_b32 s5, 35", {}, {5: 8})
TRIES.scalar("movk_extends_the_sign", "s_movk_i32 s5, 0x8000", {}, {5: 0xFFFF8000})
TRIES.scalar("addk", "s_mov_b32 s5, 3\n  s_addk_i32 s5, -5", {}, {5: 0xFFFFFFFE, 20: 0})
TRIES.scalar("mulk", "s_mov_b32 s5, 3\n  s_mulk_i32 s5, -5", {}, {5: 0xFFFFFFF1})
TRIES.scalar(
    "cmpk_u32_does_not_extend", "s_mov_b32 s5, 0xffff\n  s_cmpk_eq_u32 s5, 0xffff", {}, {20: 1}
)
TRIES.scalar("cmp_lt_i32", "s_cmp_lt_i32 s6, s7", {6: 0xFFFFFFFF, 7: 0}, {20: 1})
TRIES.scalar("cmp_lg_u64", "s_cmp_lg_u64 s[4:5], s[6:7]", {4: 1, 5: 0, 6: 1, 7: 1}, {20: 1})
TRIES.scalar("bitcmp1", "s_bitcmp1_b32 s6, 36", {6: 16}, {20: 1})
TRIES.scalar("cselect", "s_cmp_eq_u32 0, 1\n  s_cselect_b32 s5, 7, 9", {}, {5: 9})
TRIES.scalar(
    "and_saveexec",
    "s_and_saveexec_b64 s[4:5], s[6:7]\n  s_mov_b64 s[8:9], exec",
    {6: 0xF, 7: 0},
    {4: 0x55555555, 5: 0x55555555, 8: 5, 9: 0, 20: 1},
    exec=EVEN,
)
TRIES.scalar(
    "andn2_saveexec_of_its_source",
    "s_andn2_saveexec_b64 s[4:5], s[4:5]\n  s_mov_b64 s[8:9], exec",
    {4: 0xF, 5: 0},
    {4: 0x55555555, 5: 0x55555555, 8: 0xA, 9: 0, 20: 1},
    exec=EVEN,
)
TRIES.scalar(
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
TRIES.scalar(
    "loop",
    """s_mov_b32 s5, 0
.Lagain:
  s_add_u32 s5, s5, 3
  s_cmp_lt_u32 s5, 10
  s_cbranch_scc1 .Lagain""",
    {},
    {5: 12},
)
TRIES.scalar(
    "vector_follows_a_scalar_write_of_exec",
    "s_mov_b64 exec, 2\n  v_mov_b32 v1, 9\n  s_mov_b64 exec, -1\n  v_readlane_b32 s5, v1, 1\n  v_readlane_b32 s6, v1, 0",
    {},
    {5: 9, 6: 1},
    vector={1: 1},
)


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Machine]:
    return machines(TRIES, tmp_path_factory.mktemp("code"))


@pytest.mark.parametrize(("arch", "name"), names(TRIES))
def test_an_instruction_does_what_its_document_says(
    devices: dict[str, Machine], arch: str, name: str
) -> None:
    TRIES[name].check(devices[arch].run(name))
