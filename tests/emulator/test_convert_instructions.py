"""Conversion instructions as LLVM encodes them: which registers, which half or byte, which lanes."""

from __future__ import annotations

import pytest
import torch
from instruction_kit import ALL, POISON, Instructions
from shim_kit import bits

# Words that LLVM's assembler gives for the text beside them.
BF16 = "d2680007 00020702"  # v_cvt_pk_bf16_f32 v7, v2, v3
FP8_LOW = "d2a20017 00024319"  # v_cvt_pk_fp8_f32 v23, v25, v33
FP8_HIGH = "d2a24017 00022d18"  # v_cvt_pk_fp8_f32 v23, v24, v22 op_sel:[0,0,1]
PAIR_LOW = "7ea0ad22"  # v_cvt_pk_f32_fp8_e32 v[80:81], v34
PAIR_HIGH = "7ea4acf9 00050622"  # v_cvt_pk_f32_fp8_sdwa v[82:83], v34 src0_sel:WORD_1
BF16_OF_FP4 = (  # v_cvt_scalef32_pk_bf16_fp4 v84 (to v87), v46, v96, the four bytes of the source
    "d2510054 0002c12e",
    "d2510855 0002c12e",
    "d2511056 0002c12e",
    "d2511857 0002c12e",
)
BF16_OF_FP8 = ("d2690026 0002cb22", "d2690827 0002cb22")  # v38, v39 from v34, scale v101
F32_OF_FP8 = ("d2390006 00020504", "d239080e 00020504")  # v[6:7], v[14:15] from v4, scale v2
FP4_OF_BF16 = (  # v_cvt_scalef32_pk_fp4_bf16 v34, v0 (v2, v4, v6), v3, bytes 0 to 3 of the result
    ("d24d0022 00020700", 0),
    ("d24d2022 00020702", 2),
    ("d24d4022 00020704", 4),
    ("d24d6022 00020706", 6),
)
FP4_OF_F32 = (  # v_cvt_scalef32_pk_fp4_f32 v38, v102, v103 (and so on), v37
    ("d23d0026 0496cf66", 102),
    ("d23d2026 0496d368", 104),
    ("d23d4026 0496d76a", 106),
    ("d23d6026 0496db6c", 108),
)
GFX950 = [
    BF16, FP8_LOW, FP8_HIGH, *BF16_OF_FP4, *BF16_OF_FP8, *F32_OF_FP8,
    *(e for e, _ in FP4_OF_BF16), *(e for e, _ in FP4_OF_F32),
]  # fmt: skip
ODD = 0xAAAAAAAAAAAAAAAA


@pytest.fixture(scope="module")
def gfx950(tmp_path_factory: pytest.TempPathFactory) -> Instructions:
    return Instructions("gfx950", GFX950, tmp_path_factory.mktemp("gfx950"))


@pytest.fixture(scope="module")
def gfx942(tmp_path_factory: pytest.TempPathFactory) -> Instructions:
    encodings = [FP8_LOW, FP8_HIGH, PAIR_LOW, PAIR_HIGH]
    return Instructions("gfx942", encodings, tmp_path_factory.mktemp("gfx942"))


def everywhere(value: int) -> torch.Tensor:
    return torch.full((64,), value)


def numbers(start: float) -> torch.Tensor:
    """A different f32 in every lane, each a small multiple of 1/8 that bf16 and e4m3 hold."""
    return bits(start + torch.arange(64) % 8 / 8)


def bf16_pair(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    return low >> 16 | high & 0xFFFF0000


def test_packed_bf16_has_source_0_low_and_keeps_lanes_that_are_off(gfx950: Instructions) -> None:
    low, high = numbers(1), numbers(-3)
    state = gfx950.run(BF16, {2: low, 3: high}, execute=ODD)
    expected = torch.where(torch.arange(64) % 2 == 1, bf16_pair(low, high), POISON)
    assert (state[7] == expected).all()
    assert (state[[0, 1, 4, 5, 6, 8]] == POISON).all()


def test_fp8_is_ocp_on_gfx950_and_fnuz_on_gfx942(
    gfx950: Instructions, gfx942: Instructions
) -> None:
    first, second, old = bits(torch.full((64,), 1.0)), bits(torch.full((64,), -0.0)), 0x12345678
    for machine, code in ((gfx950, 0x8038), (gfx942, 0x0040)):
        state = machine.run(FP8_LOW, {25: first, 33: second, 23: everywhere(old)})
        assert (state[23] == 0x12340000 | code).all()
        state = machine.run(FP8_HIGH, {24: first, 22: second, 23: everywhere(old)})
        assert (state[23] == code << 16 | 0x5678).all()


@pytest.mark.parametrize(("mode", "ocp", "fnuz"), [(0, 0x7F7F, 0x8080), (1 << 23, 0x7E7E, 0x7F7F)])
def test_fp8_overflow_follows_the_mode(
    gfx950: Instructions, gfx942: Instructions, mode: int, ocp: int, fnuz: int
) -> None:
    large = bits(torch.full((64,), 1e6))
    for machine, code in ((gfx950, ocp), (gfx942, fnuz)):
        state = machine.run(FP8_LOW, {25: large, 33: large, 23: everywhere(0)}, mode=mode)
        assert (state[23] == code).all()


def test_fp8_writes_only_lanes_that_are_on(gfx950: Instructions) -> None:
    one = bits(torch.full((64,), 1.0))
    state = gfx950.run(FP8_HIGH, {24: one, 22: one, 23: everywhere(0x55)}, execute=ODD)
    assert (state[23, 1::2] == 0x38380055).all()
    assert (state[23, 0::2] == 0x55).all()


def test_two_fp8_become_two_registers(gfx942: Instructions) -> None:
    # FNUZ: 0x40 is 1, 0x48 is 2, 0xC8 is -2, 0x01 is 2^-10.
    word = everywhere(0x01C84840)
    low = gfx942.run(PAIR_LOW, {34: word})
    assert (low[80] == bits(torch.tensor(1.0))).all()
    assert (low[81] == bits(torch.tensor(2.0))).all()
    high = gfx942.run(PAIR_HIGH, {34: word}, execute=ALL ^ 1)
    assert (high[82, 1:] == bits(torch.tensor(-2.0))).all()
    assert (high[83, 1:] == bits(torch.tensor(2.0**-10))).all()
    assert (high[82:84, 0] == POISON).all()


def test_scaled_fp4_to_bf16_takes_the_byte_that_op_sel_names(gfx950: Instructions) -> None:
    word, scale = everywhere(0x76543210), bits(torch.full((64,), 0.5))
    values = [0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0]
    for part, encoding in enumerate(BF16_OF_FP4):
        state = gfx950.run(encoding, {46: word, 96: scale})
        low, high = bits(torch.tensor(values[2 * part : 2 * part + 2]))
        assert (state[84 + part] == bf16_pair(low, high)).all()


def test_scaled_fp8_to_bf16_and_f32_takes_the_half_that_op_sel_names(gfx950: Instructions) -> None:
    word, scale = everywhere(0xC0403830), bits(torch.full((64,), 4.0))  # 0.5, 1, 2, -2
    values = bits(torch.tensor([2.0, 4.0, 8.0, -8.0]))
    for part, encoding in enumerate(BF16_OF_FP8):
        state = gfx950.run(encoding, {34: word, 101: scale})
        assert (state[38 + part] == bf16_pair(values[2 * part], values[2 * part + 1])).all()
    for part, (encoding, target) in enumerate(zip(F32_OF_FP8, (6, 14), strict=True)):
        state = gfx950.run(encoding, {4: word, 2: scale})
        assert (state[target] == values[2 * part]).all()
        assert (state[target + 1] == values[2 * part + 1]).all()


def test_fp4_goes_to_the_byte_that_op_sel_names(gfx950: Instructions) -> None:
    scale, old = bits(torch.full((64,), 2.0)), everywhere(0x11223344)
    low, high = bits(torch.full((64,), 3.0)), bits(torch.full((64,), -12.0))  # 1.5 and -6
    for part, (encoding, source) in enumerate(FP4_OF_F32):
        state = gfx950.run(encoding, {source: low, source + 1: high, 37: scale, 38: old})
        assert (state[38] == 0x11223344 & ~(0xFF << 8 * part) | 0xF3 << 8 * part).all()
    for part, (encoding, source) in enumerate(FP4_OF_BF16):
        state = gfx950.run(encoding, {source: bf16_pair(low, high), 3: scale, 34: old}, execute=ODD)
        assert (state[34, 1::2] == 0x11223344 & ~(0xFF << 8 * part) | 0xF3 << 8 * part).all()
        assert (state[34, 0::2] == 0x11223344).all()
