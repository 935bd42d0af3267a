"""Formats by the specifications' literals and by torch's own types; quantisers by hand-worked groups."""

import pytest
import torch

from mono_build.emulator.references.bounded import exact, uncertain
from mono_build.emulator.references.formats import (
    Rule,
    decode_e2m1,
    decode_e4m3,
    e4m3_values,
    encode_e4m3,
    mxfp8,
    record_groups,
    round_e4m3,
    scale,
    scale_code,
    step,
    unpack_e2m1,
)

FLT_MIN = 1.1754943508222875e-38


@pytest.mark.parametrize(
    ("fnuz", "dtype"), [(False, torch.float8_e4m3fn), (True, torch.float8_e4m3fnuz)]
)
def test_every_byte_has_torchs_value(fnuz: bool, dtype: torch.dtype):
    want = torch.arange(256, dtype=torch.uint8).view(dtype).float()
    assert torch.equal(e4m3_values(fnuz=fnuz).float().nan_to_num(-1), want.nan_to_num(-1))
    assert int(e4m3_values(fnuz=fnuz).isnan().sum()) == (1 if fnuz else 2)


def test_the_same_bits_are_half_as_much_in_fnuz():
    codes = torch.tensor([0x01, 0x38, 0x7E, 0xFE], dtype=torch.uint8)
    assert decode_e4m3(codes, fnuz=False).tolist() == [2.0**-9, 1.0, 448.0, -448.0]
    assert decode_e4m3(codes, fnuz=True).tolist() == [2.0**-10, 0.5, 224.0, -224.0]


def test_rounding_and_encoding_are_those_of_torchs_conversion():
    torch.manual_seed(1)
    x = torch.cat(
        [torch.randn(4000) * 100, torch.randn(4000) * 0.01, torch.tensor([1.0625, 1.1875, 0.0])]
    )
    x = x.clamp(-448, 448)
    want = x.to(torch.float8_e4m3fn)
    got = round_e4m3(x.double())
    assert torch.equal(got.float(), want.float())
    assert torch.equal(encode_e4m3(got), want.view(torch.uint8))


def test_e2m1_nibbles():
    packed = torch.tensor([[0x10, 0xF9]], dtype=torch.uint8)
    assert unpack_e2m1(packed).tolist() == [[0, 1, 9, 15]]
    want = [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]
    assert decode_e2m1(torch.arange(16)).tolist() == want


def test_e8m0_codes():
    assert scale(torch.tensor([127, 128, 126, 0])).tolist() == [1.0, 2.0, 0.5, 2.0**-127]


@pytest.mark.parametrize(
    ("amax", "divided", "multiplied"),
    [
        (448.0, 127, 127),
        (448.5, 128, 128),
        (449.0 * 2.0**-10, 118, 118),
        (0.0, 1, 85),  # FLT_MIN / 448 is subnormal and not zero; 1e-10 / 448 = 2^-42.03
        (FLT_MIN, 1, 85),
        (3.0e38, 247, 247),
    ],
)
def test_scale_codes(amax: float, divided: int, multiplied: int):
    value = torch.tensor([amax]).double()
    assert scale_code(value, Rule.DIVIDE).tolist() == [divided]
    assert scale_code(value, Rule.MULTIPLY).tolist() == [multiplied]


def test_the_rules_differ_where_a_product_with_the_rounded_reciprocal_is_not_the_quotient():
    # float32(1 / 448) lies above 1 / 448, so a product can pass a power of two that the quotient meets.
    reciprocal = torch.tensor(1 / 448.0)
    amax = torch.tensor([448.0 * 2.0**e for e in range(-20, 8)])
    quotient, multiplied = amax / 448.0, amax * reciprocal
    differ = quotient != multiplied
    codes = [scale_code(amax.double(), rule) for rule in (Rule.DIVIDE, Rule.MULTIPLY)]
    assert torch.equal(codes[0], torch.arange(107, 135, dtype=torch.int32))
    assert torch.equal(codes[1] - codes[0], (differ & (multiplied > quotient)).int())


def test_a_group_by_hand():
    x = torch.zeros(1, 64)
    x[0, :4] = torch.tensor([900.0, -3.0, 0.3, 1e-3])
    x[0, 32] = 2.0**-9
    got = mxfp8(exact(x), Rule.DIVIDE)
    # 900 / 448 needs a scale of 4; 2^-9 / 448 needs 2^-17.
    assert got.codes.tolist() == [[129, 110]]
    assert got.values.value[0, :4].tolist() == [896.0, -3.0, 0.3125, 0.0]
    assert got.values.value[0, 32].item() == 2.0**-9
    assert not got.values.bound.any()
    assert step(got.values.value, got.codes)[0, :3].tolist() == [64.0, 0.25, 2.0**-5]


def test_quantised_like_torchs_conversion_of_scaled_values():
    torch.manual_seed(2)
    x = torch.randn(8, 128) * torch.exp2(torch.randint(-8, 8, (8, 1)).float())
    got = mxfp8(exact(x), Rule.DIVIDE)
    factor = torch.exp2(got.codes.float() - 127).repeat_interleave(32, 1)
    want = (x / factor).clamp(-448, 448).to(torch.float8_e4m3fn).float() * factor
    assert torch.equal(got.values.value.float(), want)
    assert bool(((x / factor).abs().view(8, 4, 32).amax(-1) > 224).all())


def test_an_uncertain_scale_makes_its_whole_group_uncertain():
    x = torch.full((1, 32), 3.0)
    x[0, 0] = 448.0
    x[0, 1] = 3 * 2.0**-9
    error = torch.zeros(1, 32).double()
    error[0, 0] = 1e-3
    got = mxfp8(uncertain(x.double(), error), Rule.DIVIDE)
    assert got.codes.tolist() == [[127]]
    assert got.values.bound[0, 2].item() == 0.0  # 3 is there at both scales
    assert got.values.value[0, 1].item() == 3 * 2.0**-9
    assert got.values.bound[0, 1].item() == 2.0**-9  # subnormals are twice as coarse there


def test_the_records_groups_have_a_floor():
    x = torch.zeros(1, 448)
    x[0, 64] = 448.0
    got = record_groups(exact(x))
    # 1e-4 / 448 = 2^-22.1 needs 2^-22.
    assert got.codes.tolist() == [[105, 127, 105, 105, 105, 105, 105]]
