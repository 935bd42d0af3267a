"""Words to instructions, and instructions to segments: encodings that are easily mistaken, by hand."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from asm_kit import Snippet, assemble

from mono_build.emulator.blocks import control_flow
from mono_build.emulator.census import Form, take_census
from mono_build.emulator.decode import decode
from mono_build.emulator.instruction import Instruction
from mono_build.emulator.translate.operands import dpp_sources

END = 0xBF810000  # s_endpgm
BASE = 0x1000


def decoded(*words: int) -> tuple[Instruction, ...]:
    return decode(struct.pack(f"<{len(words)}I", *words), BASE)


def test_an_unscaled_mfma_has_two_words_and_a_scaled_one_four() -> None:
    # VOP3P: 0xD380 | opcode; 0x2d is v_mfma_f32_16x16x128_f8f6f4, 0x2c the prefix of the scaled form.
    plain = decoded(0xD3AD0000, 0x04000000, END)
    assert [(i.mnemonic, i.size) for i in plain] == [
        ("v_mfma_f32_16x16x128_f8f6f4", 8),
        ("s_endpgm", 4),
    ]
    scaled = decoded(0xD3AC0000, 0x00022B10, 0xD3AD0000, 0x04020100, END)
    assert [(i.mnemonic, i.size) for i in scaled] == [
        ("v_mfma_scale_f32_16x16x128_f8f6f4", 16),
        ("s_endpgm", 4),
    ]
    # Scales of 9 bits each: 0x110 is v16, 0x115 is v21.
    assert [(o.field, o.code) for o in scaled[0].operands if "scale" in o.field] == [
        ("scale_src0", 0x110),
        ("scale_src1", 0x115),
    ]


def test_two_unscaled_mfmas_in_a_row_stay_two() -> None:
    found = decoded(0xD3AD0000, 0x04000000, 0xD3AD0004, 0x04000000)
    assert [i.address for i in found] == [BASE, BASE + 8]


def test_a_literal_belongs_to_its_instruction() -> None:
    # s_mov_b32 s11, 0x27000: SOP1 0xBE800000 | sdst << 16 | source 255.
    literal, end = decoded(0xBE8B00FF, 0x00027000, END)
    assert (literal.mnemonic, literal.size, literal.literal) == ("s_mov_b32", 8, 0x27000)
    assert end.address == BASE + 8


def test_sdwa_names_registers_in_its_second_word() -> None:
    # v_add_u32_sdwa v10, s5, v2: VOP2 opcode 0x34, source 0xf9; second word: s5, dst_sel and src1_sel
    # 6, src0_sel BYTE_1, bit 23: source 0 is scalar.
    (i,) = decoded(0x34 << 25 | 10 << 17 | 2 << 9 | 0xF9, 0x06810605)
    assert i.encoding == "VOP2_SDWA"
    assert {o.field: o.code for o in i.operands} == {"vdst": 266, "vsrc0": 5, "vsrc1": 258}
    assert dict(i.modifiers) == {"dst_sel": 6, "src0_sel": 1, "src1_sel": 6}


def test_readfirstlane_has_a_scalar_result() -> None:
    # VOP1 opcode 2, destination field 4, source v3.
    (i,) = decoded(0x7E000000 | 4 << 17 | 2 << 9 | 0x103)
    assert [(o.field, o.code) for o in i.operands] == [("vdst", 4), ("src0", 259)]


def test_accumulation_registers_are_numbered_from_512() -> None:
    # ds_write_b32 with the acc bit (25): data0 is a5.
    (i,) = decoded(0xD8000000 | 13 << 17 | 1 << 25, 5 << 8 | 1)
    assert {o.field: o.code for o in i.operands} == {"addr": 257, "data0": 517}


def test_a_word_that_no_table_has_becomes_unknown_and_decoding_goes_on() -> None:
    unknown, end = decoded(0xFFFFFFFF, END)
    assert (unknown.mnemonic, unknown.raw, end.mnemonic) == ("unknown", "ffffffff", "s_endpgm")


def test_segments_begin_at_targets_and_before_memory() -> None:
    instructions = decoded(
        0xBE850080,  # 0: s_mov_b32 s5, 0
        0xBE860080,  # 1: s_mov_b32 s6, 0
        0xD86C0000,  # 2: ds_read_b32 v1, v0
        0x01000000,
        0xBF8CC07F,  # 3: s_waitcnt lgkmcnt(0)
        0xBF84FFFC,  # 4: s_cbranch_scc0 -4 words: to 1, counted from 5
        0xBF8A0000,  # 5: s_barrier
        END,  # 6
    )
    assert [i.mnemonic for i in instructions] == [
        "s_mov_b32",
        "s_mov_b32",
        "ds_read_b32",
        "s_waitcnt",
        "s_cbranch_scc0",
        "s_barrier",
        "s_endpgm",
    ]
    # The branch counts from BASE + 24: 24 - 16 is the second word of instruction 2, so it leads nowhere;
    # five words back is instruction 1.
    flow = control_flow(instructions, [BASE])
    assert [(s.first, s.end) for s in flow.segments] == [(0, 2), (2, 5), (5, 6), (6, 7)]
    looping = decoded(0xBE850080, 0xBE860080, 0xBF84FFFE, END)  # to instruction 1
    assert [(s.first, s.end) for s in control_flow(looping, [BASE]).segments] == [
        (0, 1),
        (1, 3),
        (3, 4),
    ]


def test_dpp_controls() -> None:
    assert dpp_sources(0x1B)[:4] == [3, 2, 1, 0]  # quad_perm:[3,2,1,0]
    assert dpp_sources(0x104)[10:17] == [14, 15, 64, 64, 64, 64, 20]  # row_shl:4
    assert dpp_sources(0x114)[:6] == [64, 64, 64, 64, 0, 1]  # row_shr:4
    assert dpp_sources(0x121)[15:18] == [14, 31, 16]  # row_ror:1
    assert dpp_sources(0x140)[16:18] == [31, 30]  # row_mirror
    assert dpp_sources(0x141)[:2] == [7, 6]  # row_half_mirror
    assert dpp_sources(0x142)[14:17] == [64, 64, 15]  # row_bcast:15
    assert dpp_sources(0x143)[31:33] == [64, 31]  # row_bcast:31


def test_a_census_counts_forms_and_names_what_is_missing(tmp_path: Path) -> None:
    text = "v_mov_b32 v1, v2\n  v_mov_b32_dpp v1, v2 row_shl:1 row_mask:0xf bank_mask:0xf\n  v_cos_f16 v1, v2"
    census = take_census([assemble({"k": Snippet(text)}, "gfx942", tmp_path)])
    assert census.uses[Form("v_mov_b32", "gfx942", "VOP1", ())] == 1
    dpp = Form("v_mov_b32", "gfx942", "VOP1_DPP16", ("bank_mask", "dpp", "row_mask"))
    assert census.uses[dpp] == 1
    assert census.missing == {Form("v_cos_f16", "gfx942", "VOP1", ()): "no emitter"}
    assert "s_load_dwordx4" in census.mnemonics


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_a_tail_of_less_than_a_word_is_left_out(bits: int) -> None:
    assert len(decode(struct.pack("<I", END) + b"\0" * bits, BASE)) == 1
