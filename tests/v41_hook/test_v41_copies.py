"""gfx942's copies: where each byte goes, by the layout's definition, what is changed, and what is refused."""

from __future__ import annotations

import pytest
import torch

from mono_runtime.hooks.deepseek_v41 import weights_gfx942
from mono_runtime.hooks.deepseek_v41.weights_gfx942 import CopyRefused, copy_experts, copy_linear

E4M3 = torch.float8_e4m3fn


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.manual_seed(seed))


def e4m3(*shape: int, seed: int = 0) -> torch.Tensor:
    """E4M3 bytes without NaN and without -0."""
    data = drawn(*shape, seed=seed)
    data[(data & 0x7F) == 0x7F] = 0x7E
    data[data == 0x80] = 0x81
    return data


def codes(*shape: int) -> torch.Tensor:
    """E8M0 codes as a checkpoint has them."""
    return drawn(*shape, seed=9) % 16 + 110


def dense_place(row: int, k: int, width: int) -> int:
    """Where a byte lies: the wave's lane 16 j + r takes row r's column j, two blocks a load."""
    tile, r, step = row // 16, row % 16, k // 128
    block, j, byte = k % 128 // 32, k % 32 // 8, k % 8
    lane = 16 * j + r
    return (
        16 * tile * width + 2048 * step + 1024 * (block // 2) + 16 * lane + 8 * (block % 2) + byte
    )


def fp4_place(row: int, at: int, width: int) -> int:
    """The same for a byte of two FP4; a row ends with whole steps of 64 bytes, or with half of one."""
    tile, r, step = row // 16, row % 16, at // 64
    block, j, byte = at % 64 // 16, at % 16 // 4, at % 4
    lane, blocks = 16 * j + r, 4 if 64 * step + 64 <= width else 2
    return 16 * tile * width + 1024 * step + 4 * blocks * lane + 4 * block + byte


# ---- dense ----


def test_each_dense_byte_lies_where_the_wave_loads_it() -> None:
    weight = e4m3(32, 256)
    found = copy_linear(weight.view(E4M3), codes(1, 8)).codes
    flat = found.flatten().tolist()
    assert found.shape == (32, 256)
    for row in range(32):
        for k in range(256):
            assert flat[dense_place(row, k, 256)] == weight[row, k].item()


def test_k_is_padded_with_zeros_of_scale_one() -> None:
    weight = e4m3(32, 160)
    scale = codes(1, 5)
    found = copy_linear(weight.view(E4M3), scale)
    assert found.codes.shape == (32, 256)
    assert found.scales.tolist() == [[*(scale[0] + 1).tolist(), 128, 128, 128]]
    flat = found.codes.flatten().tolist()
    assert all(flat[dense_place(row, k, 256)] == 0 for row in range(32) for k in range(160, 256))
    assert all(flat[dense_place(3, k, 256)] == weight[3, k].item() for k in range(160))


def test_minus_zero_which_fnuz_reads_as_nan_becomes_zero() -> None:
    weight = e4m3(32, 128)
    weight[5, 77] = 0x80
    flat = copy_linear(weight.view(E4M3), codes(1, 4)).codes.flatten()
    assert flat[dense_place(5, 77, 128)] == 0
    assert (flat == 0x80).sum() == 0


def test_bytes_and_codes_mean_the_same_numbers_in_fnuz() -> None:
    # 0x7E is 448 in OCP and 224 in FNUZ; a code higher by one doubles it.
    weight = torch.full((32, 128), 0x7E, dtype=torch.uint8)
    found = copy_linear(weight.view(E4M3), torch.full((1, 4), 120, dtype=torch.uint8))
    value = found.codes.view(torch.float8_e4m3fnuz).float() * 2.0 ** (
        found.scales[0, 0].item() - 127
    )
    assert (value == 448.0 * 2.0**-7).all()


def test_the_bytes_behind_a_dequantised_weight_are_found() -> None:
    data, scale = e4m3(64, 256), codes(2, 8)
    factor = torch.exp2(scale.double() - 127).repeat_interleave(32, 0).repeat_interleave(32, 1)
    dequantised = (data.view(E4M3).double() * factor).bfloat16()
    found, wanted = copy_linear(dequantised, scale), copy_linear(data.view(E4M3), scale)
    assert torch.equal(found.codes, wanted.codes)
    assert torch.equal(found.scales, wanted.scales)


@pytest.mark.parametrize("value", [1.0078125, 480.0, float("nan"), float("inf"), 2.0**-12])
def test_a_value_that_is_no_e4m3_number_is_refused(value: float) -> None:
    weight = torch.ones(32, 128, dtype=torch.bfloat16)
    weight[31, 127] = value
    with pytest.raises(
        CopyRefused, match=r"^1 of 4096 values of a dense weight are no e4m3 number"
    ):
        copy_linear(weight, torch.full((1, 4), 127, dtype=torch.uint8))


@pytest.mark.parametrize("byte", [0x7F, 0xFF])
def test_nan_which_fnuz_does_not_have_there_is_refused(byte: int) -> None:
    weight = e4m3(32, 128)
    weight[0, 9] = byte
    with pytest.raises(CopyRefused, match=r"^1 of 4096 values"):
        copy_linear(weight.view(E4M3), codes(1, 4))


def test_a_wide_weight_is_worked_on_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    data, scale = e4m3(96, 128), codes(3, 4)
    whole = copy_linear(data.view(E4M3), scale)
    monkeypatch.setattr(weights_gfx942, "PIECE", 32 * 128)
    pieces = copy_linear(data.view(E4M3).float().bfloat16(), torch.full_like(scale, 127))
    assert torch.equal(pieces.codes, whole.codes)


def test_scales_repeated_for_each_row_are_folded() -> None:
    data, scale = e4m3(64, 128).view(E4M3), codes(2, 4)
    found = copy_linear(data, scale.repeat_interleave(32, 0).view(torch.float8_e8m0fnu))
    assert torch.equal(found.scales, scale + 1)


def test_rows_of_a_block_with_scales_of_their_own_are_refused() -> None:
    scale = codes(2, 4).repeat_interleave(32, 0)
    scale[40, 2] += 1
    with pytest.raises(CopyRefused, match="differ between the rows of a block"):
        copy_linear(e4m3(64, 128).view(E4M3), scale)


@pytest.mark.parametrize(("code", "fits"), [(249, True), (250, False), (255, False)])
def test_codes_whose_products_overflow_are_refused(code: int, fits: bool) -> None:
    scale = torch.full((1, 4), 120, dtype=torch.uint8)
    scale[0, 3] = code
    weight = e4m3(32, 128).view(E4M3)
    if fits:
        assert copy_linear(weight, scale).scales[0, 3] == 250
    else:
        with pytest.raises(CopyRefused, match=f"has code {code}"):
            copy_linear(weight, scale)


@pytest.mark.parametrize(
    ("weight", "scale", "match"),
    [
        (torch.zeros(48, 128), codes(1, 4), "not blocks of 32 x 32"),
        (torch.zeros(32, 80), codes(1, 2), "not blocks of 32 x 32"),
        (
            torch.zeros(32, 128),
            codes(1, 3),
            r"the scales of a dense weight \(32, 128\) are \(1, 3\)",
        ),
        (torch.zeros(32, 128, dtype=torch.float16), codes(1, 4), "a dense weight is torch.float16"),
        (torch.zeros(32, 128), torch.zeros(1, 4), "torch.float32 where bytes"),
    ],
)
def test_what_is_no_mxfp8_matrix_is_refused(
    weight: torch.Tensor, scale: torch.Tensor, match: str
) -> None:
    with pytest.raises(CopyRefused, match=match):
        copy_linear(weight, scale)


# ---- experts ----

INTER, PADDED, HIDDEN = 64, 128, 256


def experts(inter: int = INTER, padded: int = PADDED, seed: int = 1) -> tuple[torch.Tensor, ...]:
    """Two experts as vLLM loads them: gate rows, up rows, both padded."""
    w13, w2 = (
        drawn(2, 2 * padded, HIDDEN // 2, seed=seed),
        drawn(2, HIDDEN, padded // 2, seed=seed + 1),
    )
    w13.view(2, 2, padded, -1)[:, :, inter:] = 0
    w2[:, :, inter // 2 :] = 0
    return w13, codes(2, 2 * padded, HIDDEN // 32), w2, codes(2, HIDDEN, padded // 32)


def without_minus_zero(byte: int) -> int:
    low, high = byte & 15, byte >> 4
    return (0 if low == 8 else low) | (0 if high == 8 else high) << 4


@pytest.mark.parametrize(("inter", "padded"), [(64, 128), (128, 128), (192, 256)])
def test_each_fp4_byte_lies_where_the_wave_loads_it(inter: int, padded: int) -> None:
    w13, w13_s, w2, w2_s = experts(inter, padded)
    found = copy_experts(w13, w13_s, w2, w2_s, inter)
    assert found.w13.shape == (2, 2 * inter, HIDDEN // 2)
    assert found.w2.shape == (2, HIDDEN, inter // 2)
    for e in range(2):
        flat, source = found.w13[e].flatten().tolist(), w13[e].tolist()
        for row in range(2 * inter):
            # Row 2 i is gate row i, row 2 i + 1 is up row i.
            loaded = source[row // 2 + row % 2 * padded]
            for at in range(HIDDEN // 2):
                assert flat[fp4_place(row, at, HIDDEN // 2)] == without_minus_zero(loaded[at])
        flat, source = found.w2[e].flatten().tolist(), w2[e].tolist()
        for row in range(HIDDEN):
            for at in range(inter // 2):
                assert flat[fp4_place(row, at, inter // 2)] == without_minus_zero(source[row][at])


def test_codes_of_gate_and_up_lie_in_rounds_and_those_of_down_row_by_row() -> None:
    hidden = 512
    w13, w2 = (
        torch.zeros(1, 2 * PADDED, hidden // 2).byte(),
        torch.zeros(1, hidden, PADDED // 2).byte(),
    )
    w13_s, w2_s = drawn(1, 2 * PADDED, hidden // 32), drawn(1, hidden, PADDED // 32)
    found = copy_experts(w13, w13_s, w2, w2_s, INTER)
    flat = found.w13_s.flatten().tolist()
    for row in range(2 * INTER):
        for column in range(16):
            place = row // 16 * 256 + column // 8 * 128 + row % 16 * 8 + column % 8
            assert flat[place] == w13_s[0, row // 2 + row % 2 * PADDED, column].item()
    assert torch.equal(found.w2_s, w2_s[:, :, : INTER // 32])


def test_what_vllm_loaded_is_left_as_it_is() -> None:
    loaded = experts()
    before = [t.clone() for t in loaded]
    copy_experts(*loaded, INTER)
    assert all(torch.equal(a, b) for a, b in zip(loaded, before, strict=True))


def test_experts_are_worked_on_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = experts()
    whole = copy_experts(*loaded, INTER)
    monkeypatch.setattr(weights_gfx942, "PIECE", 1)
    pieces = copy_experts(*loaded, INTER)
    assert torch.equal(pieces.w13, whole.w13)
    assert torch.equal(pieces.w2, whole.w2)


@pytest.mark.parametrize("where", ["gate", "up", "down"])
def test_padding_that_holds_weights_is_refused(where: str) -> None:
    w13, w13_s, w2, w2_s = experts()
    if where == "down":
        w2[1, 200, INTER // 2] = 0x10
    else:
        w13[1, INTER + (PADDED if where == "up" else 0), 3] = 0x01
    with pytest.raises(CopyRefused, match="hold weights beyond width 64"):
        copy_experts(w13, w13_s, w2, w2_s, INTER)


def test_experts_in_another_form_are_refused_with_their_shapes() -> None:
    w13, w13_s, w2, w2_s = experts()
    with pytest.raises(CopyRefused, match=r"no MXFP4 experts of width 64: .*w2_s \(2, 4, 256\)"):
        copy_experts(w13, w13_s, w2, w2_s.transpose(1, 2), INTER)


@pytest.mark.parametrize("inter", [0, 48, 160])
def test_a_width_that_cannot_be_stored_is_refused(inter: int) -> None:
    with pytest.raises(CopyRefused, match=f"no MXFP4 experts of width {inter}"):
        copy_experts(*experts(), inter)


# ---- reloads ----


def addresses(copy: object, names: str) -> list[int]:
    return [getattr(copy, name).data_ptr() for name in names.split()]


def test_a_reload_of_a_matrix_goes_to_the_same_addresses() -> None:
    first = copy_linear(e4m3(32, 160).view(E4M3), codes(1, 5))
    where = addresses(first, "codes scales")
    other, scale = e4m3(32, 160, seed=5).view(E4M3), codes(1, 5) + 3
    again = copy_linear(other, scale, into=first)
    wanted = copy_linear(other, scale)
    assert again is first
    assert addresses(first, "codes scales") == where
    assert torch.equal(first.codes, wanted.codes)
    assert torch.equal(first.scales, wanted.scales)


def test_a_reload_of_experts_goes_to_the_same_addresses() -> None:
    first = copy_experts(*experts(), INTER)
    where = addresses(first, "w13 w13_s w2 w2_s")
    again = copy_experts(*experts(seed=7), INTER, into=first)
    wanted = copy_experts(*experts(seed=7), INTER)
    assert again is first
    assert addresses(first, "w13 w13_s w2 w2_s") == where
    for name in ("w13", "w13_s", "w2", "w2_s"):
        assert torch.equal(getattr(first, name), getattr(wanted, name))


def test_a_reload_that_fails_leaves_the_first_copy() -> None:
    first = copy_linear(e4m3(64, 128).view(E4M3), codes(2, 4))
    before = first.codes.clone(), first.scales.clone()
    # The last row alone is wrong, when everything before it has been worked on.
    wrong = torch.ones(64, 128, dtype=torch.bfloat16)
    wrong[63, 127] = 1.0078125
    with pytest.raises(CopyRefused, match="1 of"):
        copy_linear(wrong, torch.full((2, 4), 127, dtype=torch.uint8), into=first)
    assert torch.equal(first.codes, before[0])
    assert torch.equal(first.scales, before[1])


@pytest.mark.parametrize("padded", [64, 256])
def test_a_reload_of_experts_of_another_width_is_refused(padded: int) -> None:
    first = copy_experts(*experts(), INTER)
    before = first.w13.clone()
    with pytest.raises(CopyRefused, match="a reload changes the weights from"):
        copy_experts(*experts(128, 128), 128, into=first)
    assert torch.equal(first.w13, before)
    # How far the loader pads them makes no difference.
    copy_experts(*experts(padded=padded), INTER, into=first)


def test_a_reload_of_a_matrix_of_another_shape_is_refused() -> None:
    first = copy_linear(e4m3(32, 128).view(E4M3), codes(1, 4))
    with pytest.raises(CopyRefused, match="captured graphs read the first ones") as caught:
        copy_linear(e4m3(64, 128).view(E4M3), codes(2, 4), into=first)
    assert caught.value.fix == "restart the server to serve weights of other shapes"
