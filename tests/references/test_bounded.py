"""The bounds hold for computations in other orders, and are zero where nothing may differ."""

import math
from fractions import Fraction

import torch

from mono_build.emulator.references.bounded import (
    bf16,
    clamp,
    exact,
    fma,
    linear,
    monotone,
    product,
    total,
    uncertain,
    unit,
    unit_f32,
)


def _nearest_f32(x: Fraction) -> float:
    """Correct rounding by exact arithmetic, for normal numbers."""
    if x == 0:
        return 0.0
    exponent = math.floor(math.log2(abs(x)))
    while Fraction(2) ** (exponent + 1) <= abs(x):
        exponent += 1
    while Fraction(2) ** exponent > abs(x):
        exponent -= 1
    step = Fraction(2) ** (exponent - 23)
    whole, rest = divmod(x / step, 1)
    up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1)
    return float((whole + up) * step)


def test_fma_rounds_once_also_where_a_double_sum_would_round_twice():
    torch.manual_seed(1)
    a, b = torch.randn(500), torch.randn(500)
    # Sums near a float32 midpoint with a tail far below a float64's last bit.
    c = torch.cat([torch.randn(250), torch.randn(250) * 2.0**-40])
    a = torch.cat([a, torch.tensor([1.0, 1.0])])
    b = torch.cat([b, torch.tensor([1 + 2.0**-23, 1.0])])
    c = torch.cat([c, torch.tensor([2.0**-24 + 2.0**-47, 2.0**-24])])
    got = fma(exact(a), exact(b), exact(c))
    want = [
        _nearest_f32(Fraction(x) * Fraction(y) + Fraction(z))
        for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    ]
    assert got.value.tolist() == want
    assert not got.bound.any()


def test_fma_breaks_a_midpoint_by_what_lies_below_a_double():
    # 1 + 2^-24 is a midpoint of float32; the rest, 2^-90, decides and does not fit a double.
    tiny = 2.0**-45
    for sign, want in ((1.0, 1 + 2.0**-23), (-1.0, 1.0)):
        got = fma(
            exact(torch.tensor([tiny])),
            exact(torch.tensor([sign * tiny])),
            exact(torch.tensor([1 + 2.0**-24], dtype=torch.float64)),
        )
        assert got.value.item() == want


def test_elementwise_float32_arithmetic_is_reproduced_bit_by_bit():
    torch.manual_seed(2)
    a, b = torch.randn(2000), torch.randn(2000)
    for got, want in (
        (exact(a) + exact(b), a + b),
        (exact(a) - exact(b), a - b),
        (exact(a) * exact(b), a * b),
        (exact(a) / exact(b), a / b),
    ):
        assert torch.equal(got.value.float(), want)
        assert not got.bound.any()


def test_a_float32_matrix_product_in_any_order_lies_within_the_bound():
    torch.manual_seed(3)
    weight, x = torch.randn(40, 2048), torch.randn(6, 2048)
    want = linear(weight, exact(x), 2048)
    for seed in range(5):
        order = torch.randperm(2048, generator=torch.Generator().manual_seed(seed))
        terms = (x[:, None, :] * weight)[..., order]
        running = torch.zeros(6, 40)
        for k in range(2048):
            running = running + terms[..., k]
        assert bool(((running.double() - want.value).abs() <= want.bound).all())
    # The bound is of use: some thousands of float32 units, far below a bfloat16 one.
    assert float((want.bound / want.value.abs()).median()) < 2.0**-9


def test_errors_of_the_terms_reach_the_sum():
    torch.manual_seed(4)
    weight, x = torch.randn(30, 512), torch.randn(5, 512)
    error = torch.rand(5, 512).double() * 1e-3
    want = linear(weight, uncertain(x, error), 512)
    sums = total(uncertain(x, error), -1, 512)
    pairs = product(exact(weight), uncertain(x, error).map(torch.t))
    for _ in range(20):
        moved = x.double() + (torch.randint(0, 2, x.shape) * 2 - 1) * error
        assert bool(((moved @ weight.double().T - want.value).abs() <= want.bound).all())
        assert bool(((weight.double() @ moved.T - pairs.value).abs() <= pairs.bound).all())
        assert bool(((moved.sum(-1) - sums.value).abs() <= sums.bound).all())


def test_rounding_to_bfloat16_is_certain_away_from_an_edge_and_a_step_wide_at_one():
    step = 2.0**-7
    x = uncertain(
        torch.tensor([1.0, 1 + step / 2, 1 + step * 0.6]).double(),
        torch.tensor([1e-6, 1e-6, 1e-6]).double(),
    )
    got = bf16(x)
    assert got.value.tolist() == [1.0, 1.0, 1 + step]
    assert got.bound.tolist() == [0.0, step, 0.0]


def test_a_limit_hides_errors_beyond_it():
    x = uncertain(torch.tensor([12.0, 9.5]).double(), torch.tensor([1.0, 1.0]).double())
    got = clamp(x, high=10.0)
    assert got.value.tolist() == [10.0, 9.5]
    assert got.bound.tolist() == [0.0, 1.0]


def test_a_function_carries_its_slope_and_its_own_error():
    x = uncertain(torch.tensor([3.0]).double(), torch.tensor([0.01]).double())
    got = monotone(x, torch.exp2, 1)
    assert got.value.item() == 8.0
    assert 8 * (2**0.01 - 1) < got.bound.item() < 8 * (2**0.01 - 1) + 4e-6


def test_units_are_the_spacing_of_the_format():
    x = torch.tensor([1.0, 1.99, 2.0, -0.75, 0.0, 2.0**-127], dtype=torch.float64)
    assert unit(x, 7, -126).tolist() == [2**-7, 2**-7, 2**-6, 2**-8, 2.0**-133, 2.0**-133]
    assert unit_f32(torch.tensor([1.0], dtype=torch.float64)).item() == 2.0**-23
