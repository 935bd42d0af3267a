"""Arithmetic on f16 and small integers as LLVM encodes it: halves, signs, which half stays."""

from __future__ import annotations

import struct

import pytest
import torch
from instruction_kit import POISON, Instructions
from shim_kit import bits

# Words that LLVM's assembler gives for the text beside them.
PK_ADD = "d38f4007 18020702"  # v_pk_add_f16 v7, v2, v3
# v_pk_add_f16 v7, v2, v3 op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[0,1] neg_hi:[1,0]
PK_ADD_MIXED = "d38f4907 50020702"
PK_FMA = "d38e4007 1c120702"  # v_pk_fma_f16 v7, v2, v3, v4
PK_MUL_2 = "d3904007 0801e902"  # v_pk_mul_f16 v7, v2, 2.0 op_sel_hi:[1,0]
PK_MAX = "d3924007 18020702"  # v_pk_max_f16 v7, v2, v3
PK_MIN = "d3914007 18020702"  # v_pk_min_f16 v7, v2, v3
ADD = "3e0e0702"  # v_add_f16_e32 v7, v2, v3
SUB = "400e0702"  # v_sub_f16_e32 v7, v2, v3
MUL_SIGNS = "d1220207 20020702"  # v_mul_f16_e64 v7, -v2, |v3|
FMA = "d2060007 04120702"  # v_fma_f16 v7, v2, v3, v4
MAX = "5a0e0702"  # v_max_f16_e32 v7, v2, v3
OFFSET = "7e0e1d02"  # v_cvt_off_f32_i4_e32 v7, v2
PK_I16 = "d2980007 00020702"  # v_cvt_pk_i16_i32 v7, v2, v3
PK_U16 = "d2970007 00020702"  # v_cvt_pk_u16_u32 v7, v2, v3
ODD = 0xAAAAAAAAAAAAAAAA


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Instructions:
    encodings = [
        PK_ADD, PK_ADD_MIXED, PK_FMA, PK_MUL_2, PK_MAX, PK_MIN, ADD, SUB, MUL_SIGNS, FMA, MAX,
        OFFSET, PK_I16, PK_U16,
    ]  # fmt: skip
    return Instructions("gfx950", encodings, tmp_path_factory.mktemp("halves"))


def half(value: float) -> int:
    return int(struct.unpack("<H", struct.pack("<e", value))[0])


def pair(low: float, high: float) -> torch.Tensor:
    return torch.full((64,), half(low) | half(high) << 16)


A, B, C = pair(1.5, -2.0), pair(0.25, 8.0), pair(-1.0, 0.5)


@pytest.mark.parametrize(
    ("encoding", "low", "high"),
    [
        (PK_ADD, 1.75, 6.0),
        (PK_ADD_MIXED, -2.0 - 0.25, -1.5 + 8.0),
        (PK_FMA, 1.5 * 0.25 - 1.0, -2.0 * 8.0 + 0.5),
        (PK_MUL_2, 3.0, -4.0),
        (PK_MAX, 1.5, 8.0),
        (PK_MIN, 0.25, -2.0),
    ],
)
def test_packed_halves(machine: Instructions, encoding: str, low: float, high: float) -> None:
    state = machine.run(encoding, {2: A, 3: B, 4: C}, execute=ODD)
    assert (state[7, 1::2] == pair(low, high)[1::2]).all()
    assert (state[7, 0::2] == POISON).all()


@pytest.mark.parametrize(
    ("encoding", "value", "keeps"),
    [
        (ADD, 1.75, False),
        (SUB, 1.25, False),
        (MUL_SIGNS, -0.375, False),
        (FMA, 1.5 * 0.25 - 1.0, True),
        (MAX, 1.5, False),
    ],
)
def test_single_halves(machine: Instructions, encoding: str, value: float, keeps: bool) -> None:
    state = machine.run(encoding, {2: A, 3: B, 4: C, 7: torch.full((64,), 0xDEAD1234)})
    assert (state[7] == half(value) | (0xDEAD0000 if keeps else 0)).all()


def test_overflow_follows_the_mode(machine: Instructions) -> None:
    large = pair(60000.0, -60000.0)
    state = machine.run(PK_ADD, {2: large, 3: large})
    assert (state[7] == 0xFC007C00).all()
    state = machine.run(PK_ADD, {2: large, 3: large}, mode=1 << 23)
    assert (state[7] == 0xFBFF7BFF).all()


def test_small_integers(machine: Instructions) -> None:
    codes = torch.arange(64)
    signed = torch.where(codes % 16 > 7, codes % 16 - 16, codes % 16)
    assert (machine.run(OFFSET, {2: codes})[7] == bits(signed / 16)).all()
    low, high = torch.full((64,), 70000), torch.full((64,), -5 & 0xFFFFFFFF)
    assert (machine.run(PK_I16, {2: low, 3: high})[7] == 0xFFFB7FFF).all()
    assert (machine.run(PK_U16, {2: low, 3: torch.full((64,), 7)})[7] == 0x0007FFFF).all()
