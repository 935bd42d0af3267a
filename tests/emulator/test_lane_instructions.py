"""DPP, SDWA and moves between lanes, against the CDNA3 and CDNA4 ISA documents.

Every expected value is written down or worked out here with Python's integers, ``struct`` or ``math``.
"""

from __future__ import annotations

import pytest
from asm_kit import LANES, Machine, Result, Snippet
from tries_kit import EVEN, OLD, Tries, Try, f32, machines, names

TRIES = Tries()

# Lanes.
TRIES.vector(
    "dpp_quad_perm",
    "v_mov_b32_dpp v10, v1 quad_perm:[3,2,1,0] row_mask:0xf bank_mask:0xf",
    {1: list(LANES)},
    [n ^ 3 for n in LANES],
)
TRIES.vector(
    "dpp_into_its_own_register",
    "v_mov_b32_dpp v10, v10 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf",
    {10: list(LANES)},
    [n ^ 1 for n in LANES],
)
TRIES.vector(
    "dpp_row_shr_with_banks",
    "v_mov_b32_dpp v10, v1 row_shr:4 row_mask:0xf bank_mask:0xa",
    {1: list(LANES)},
    [n - 4 if n // 4 % 4 in (1, 3) else OLD for n in LANES],
)
TRIES.vector(
    "dpp_row_shl_keeps_lanes_without_source",
    "v_mov_b32_dpp v10, v1 row_shl:8 row_mask:0xf bank_mask:0xf",
    {1: list(LANES)},
    [n + 8 if n % 16 < 8 else OLD for n in LANES],
)
TRIES.vector(
    "dpp_bound_ctrl_gives_zero",
    "v_mov_b32_dpp v10, v1 row_shl:8 row_mask:0xf bank_mask:0xf bound_ctrl:0",
    {1: list(LANES)},
    [n + 8 if n % 16 < 8 else 0 for n in LANES],
)
TRIES.vector(
    "dpp_row_mask",
    "v_mov_b32_dpp v10, v1 row_ror:1 row_mask:0x5 bank_mask:0xf",
    {1: list(LANES)},
    [(n - n % 16) + (n - 1) % 16 if n // 16 in (0, 2) else OLD for n in LANES],
)
TRIES.vector(
    "dpp_on_arithmetic",
    "v_add_f32_dpp v10, v1, v2 row_half_mirror row_mask:0xf bank_mask:0xf",
    {1: [f32(n) for n in LANES], 2: f32(1)},
    [f32((n ^ 7) + 1) for n in LANES],
)
TRIES.vector(
    "dpp_from_a_lane_that_is_off",
    "v_mov_b32_dpp v10, v1 quad_perm:[1,1,1,1] row_mask:0xf bank_mask:0xf",
    {1: list(LANES)},
    OLD,
    exec=EVEN,
)
TRIES.vector(
    "sdwa_selections",
    "v_add_u32_sdwa v10, v1, sext(v2) dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_2 src1_sel:BYTE_0",
    {1: 0x00120000, 2: 0xFF},
    0x00115555,
)
TRIES.vector(
    "sdwa_pads_with_zero",
    "v_mov_b32_sdwa v10, v1 dst_sel:BYTE_1 dst_unused:UNUSED_PAD src0_sel:WORD_1",
    {1: 0x12345678},
    0x3400,
)
TRIES.vector(
    "sdwa_pads_with_sign",
    "v_mov_b32_sdwa v10, v1 dst_sel:BYTE_1 dst_unused:UNUSED_SEXT src0_sel:WORD_1",
    {1: 0x12B45678},
    0xFFFFB400,
)
TRIES.vector(
    "sdwa_order_of_sources",
    "v_sub_u16_sdwa v10, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD",
    {1: 0x00090000, 2: 2},
    7,
)
TRIES.vector(
    "sdwa_scalar_source",
    "v_add_u32_sdwa v10, s5, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:DWORD",
    {2: 1},
    0x35,
    scalar={5: 0x1234 << 1 | 0x1000},
)
TRIES.vector(
    "bpermute",
    "ds_bpermute_b32 v10, v1, v2\n  s_waitcnt lgkmcnt(0)",
    {1: [4 * (63 - n) for n in LANES], 2: list(LANES)},
    [63 - n for n in LANES],
    lds=256,
)
TRIES.vector(
    "bpermute_from_lanes_that_are_off_is_zero",
    "ds_bpermute_b32 v10, v1, v2\n  s_waitcnt lgkmcnt(0)",
    {1: [4 * (n + 1) for n in LANES], 2: list(LANES)},
    [OLD if n % 2 else 0 for n in LANES],
    exec=EVEN,
    lds=256,
)
TRIES.vector(
    "permute",
    "ds_permute_b32 v10, v1, v2\n  s_waitcnt lgkmcnt(0)",
    {1: [4 * (63 - n) for n in LANES], 2: list(LANES)},
    [63 - n for n in LANES],
    lds=256,
)
TRIES.vector(
    "swizzle_xor",
    "ds_swizzle_b32 v10, v1 offset:0x401f\n  s_waitcnt lgkmcnt(0)",
    {1: list(LANES)},
    [n ^ 16 for n in LANES],
    lds=256,
)
TRIES.vector(
    "swizzle_quad",
    "ds_swizzle_b32 v10, v1 offset:0x801b\n  s_waitcnt lgkmcnt(0)",
    {1: list(LANES)},
    [n ^ 3 for n in LANES],
    lds=256,
)
TRIES.vector(
    "accumulation_registers",
    "v_accvgpr_write_b32 a1, v1\n  v_accvgpr_mov_b32 a2, a1\n  v_accvgpr_write_b32 a1, 5\n"
    "  v_accvgpr_read_b32 v10, a2\n  v_lshl_or_b32 v10, v2, 8, v10",
    {1: list(LANES), 2: 3},
    [OLD if n % 2 else 3 << 8 | n for n in LANES],
    exec=EVEN,
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


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Machine]:
    return machines(TRIES, tmp_path_factory.mktemp("code"))


@pytest.mark.parametrize(("arch", "name"), names(TRIES))
def test_an_instruction_does_what_its_document_says(
    devices: dict[str, Machine], arch: str, name: str
) -> None:
    TRIES[name].check(devices[arch].run(name))
