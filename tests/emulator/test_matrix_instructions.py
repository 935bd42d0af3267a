"""Matrix instructions as LLVM encodes them: which registers, formats, scale bytes; EXEC does not count."""

from __future__ import annotations

import pytest
import torch
from instruction_kit import POISON, Instructions
from matrix_kit import (
    CBSZ,
    FORMATS,
    SHAPES,
    from_result,
    random_operand,
    registers_of,
    scale_lanes,
    scaled_case,
    to_result,
    tolerance,
)
from shim_kit import floats

# Words that LLVM's assembler gives for the text beside them.
BF16_K16 = "d3e10050 0202ad50"  # v_mfma_f32_16x16x16_bf16 v[80:83], v[80:81], v[86:87], 0
FP8_K32 = "d3f3000e 02020d66"  # v_mfma_f32_16x16x32_fp8_fp8 v[14:17], v[102:103], v[6:7], 0
F32_K4 = "d3c50022 02025d26"  # v_mfma_f32_16x16x4_f32 v[34:37], v38, v46, 0
BF16_K32 = "d3b5000c 02021984"  # v_mfma_f32_16x16x32_bf16 v[12:15], v[132:135], v[12:15], 0
# v_mfma_scale_f32_16x16x128_f8f6f4 of fp8 v[28:31], v[116:123], v[42:49], 0, v26, v32
SCALED_FP8 = "d3ac0000 0002411a d3ad081c 02025574"
# ... of fp4 and fp8: v[222:225], v[226:229], v[238:245], 0, v222, v6 cbsz:4
SCALED_FP4_FP8 = "d3ac0000 00020dde d3ad0cde 0203dde2"
# ... of two fp4: v[36:39], v[114:117], v[170:173], 0, v36, v0 cbsz:4 blgp:4
SCALED_FP4 = "d3ac0000 00020124 d3ad0c24 82035572"
# ... of fp8 v[8:11], v[8:15], v[16:23], v[2:5], v1, v7 by the scales' bytes
SCALED_BYTES = {
    (0, 0): "d3ac0000 00020f01 d3ad0808 040a2108",
    (1, 2): "d3ac0800 10020f01 d3ad0808 040a2108",
    (2, 1): "d3ac1000 08020f01 d3ad0808 040a2108",
    (3, 0): "d3ac0800 08020f01 d3ad0808 040a2108",
    (0, 3): "d3ac1000 10020f01 d3ad0808 040a2108",
}
GFX950 = [
    BF16_K16,
    F32_K4,
    BF16_K32,
    SCALED_FP8,
    SCALED_FP4_FP8,
    SCALED_FP4,
    *SCALED_BYTES.values(),
]
GFX942 = [BF16_K16, F32_K4, FP8_K32]


@pytest.fixture(scope="module")
def gfx950(tmp_path_factory: pytest.TempPathFactory) -> Instructions:
    return Instructions("gfx950", GFX950, tmp_path_factory.mktemp("gfx950"))


@pytest.fixture(scope="module")
def gfx942(tmp_path_factory: pytest.TempPathFactory) -> Instructions:
    return Instructions("gfx942", GFX942, tmp_path_factory.mktemp("gfx942"))


def result(state: torch.Tensor, first: int) -> torch.Tensor:
    return from_result(floats(state[first : first + 4]).view(torch.int32), 16).to(torch.float64)


@pytest.mark.parametrize(
    ("arch", "encoding", "shape", "form", "places"),
    [
        ("gfx942", BF16_K16, "16x16x16", "bf16", (80, 80, 86)),
        ("gfx950", BF16_K16, "16x16x16", "bf16", (80, 80, 86)),
        ("gfx942", FP8_K32, "16x16x32", "fp8_fnuz", (14, 102, 6)),
        ("gfx942", F32_K4, "16x16x4", "f32", (34, 38, 46)),
        ("gfx950", F32_K4, "16x16x4", "f32", (34, 38, 46)),
        ("gfx950", BF16_K32, "16x16x32", "bf16", (12, 132, 12)),
    ],
)
def test_dense(
    request: pytest.FixtureRequest,
    arch: str,
    encoding: str,
    shape: str,
    form: str,
    places: tuple[int, int, int],
) -> None:
    machine: Instructions = request.getfixturevalue(arch)
    generator = torch.Generator().manual_seed(11)
    depth, width = SHAPES[shape].depth, FORMATS[form][0]
    operands = [random_operand(form, 16, depth, generator) for _ in range(2)]
    d, *sources = places
    codes = [registers_of(o[0], width, SHAPES[shape]) for o in operands]
    state = machine.run(encoding, dict(zip(sources, codes, strict=True)), execute=0x5)
    a, b = operands[0][1], operands[1][1]
    zero = torch.zeros((16, 16), dtype=torch.float64)
    assert ((result(state, d) - a @ b.T).abs() <= tolerance(a, b, zero)).all()
    written = set(range(d, d + 4)) | {
        s + n for s, c in zip(sources, codes, strict=True) for n in range(len(c))
    }
    untouched = [r for r in range(512) if r not in written]
    assert (state[untouched] == POISON).all()


@pytest.mark.parametrize(
    ("encoding", "form_a", "form_b", "places"),
    [
        (SCALED_FP8, "fp8", "fp8", (28, 116, 42, 26, 32)),
        (SCALED_FP4_FP8, "fp4", "fp8", (222, 226, 238, 222, 6)),
        (SCALED_FP4, "fp4", "fp4", (36, 114, 170, 36, 0)),
    ],
)
def test_scaled_operands_of_both_sizes(
    gfx950: Instructions, encoding: str, form_a: str, form_b: str, places: tuple[int, ...]
) -> None:
    case = scaled_case("16x16x128", form_a, form_b, seed=12)
    d, a, b, scale_a, scale_b = places
    registers = {
        a: case["a"],
        b: case["b"],
        scale_a: scale_lanes(case["scale_a"], 0),
        scale_b: scale_lanes(case["scale_b"], 0),
    }
    state = gfx950.run(encoding, registers)
    exact = case["exact"] - case["c"].to(torch.float64)  # C is the constant 0
    assert ((result(state, d) - exact).abs() <= case["tolerance"]).all()
    assert CBSZ[form_a] == int(encoding.split()[2], 16) >> 8 & 7


@pytest.mark.parametrize("chosen", SCALED_BYTES)
def test_op_sel_chooses_the_scales_bytes(gfx950: Instructions, chosen: tuple[int, int]) -> None:
    case = scaled_case("16x16x128", "fp8", "fp8", seed=13)
    registers = {
        8: case["a"],
        16: case["b"],
        2: to_result(case["c"]),
        1: scale_lanes(case["scale_a"], chosen[0]),
        7: scale_lanes(case["scale_b"], chosen[1]),
    }
    state = gfx950.run(SCALED_BYTES[chosen], registers)
    assert ((result(state, 8) - case["exact"]).abs() <= case["tolerance"]).all()
