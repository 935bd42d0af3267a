"""Numbers with an error bound: what a kernel must compute, and how far it may be off.

A reference follows a kernel's rounding points. Where the kernel's result does not depend on anything
but its inputs (IEEE operations in a stated order), the reference gives the same bits and the bound is
zero. Where it does depend (the order of a sum, a hardware approximation), the result is a value and a
bound, and both are carried through the following stages: a value near the edge of a coarse format may
round either way, and then the bound holds one step of that format.

**Sums.** A float32 sum of terms ``t`` whose additions form a tree of depth ``d`` (``d`` is the number
of terms for a plain loop) rounds every partial sum by at most ``U = 2^-24`` relative. A partial sum of
a part ``p`` of the terms stays within ``3 |p|_2 + |sum|``, and the parts of one level of the tree are
disjoint, so the squares of all partial sums add up to at most ``d (3 |t|_2 + |sum|)^2``. By Hoeffding's
inequality the sum of independent errors, each at most ``a_i``, exceeds ``6 |a|_2`` with a probability
below 2^-24. So a sum's own error is taken as ``6 U sqrt(d) (3 |t|_2 + |sum|)`` and that of its terms'
errors as ``6 |w e|_2``. A matrix instruction is taken as a plain loop over its products: in which order
it adds them is not documented.

**Hardware functions.** v_exp_f32, v_log_f32, v_rcp_f32, v_rsq_f32 and v_sqrt_f32 are accurate to one
unit in the last place (AMD's CDNA3 and CDNA4 ISA documents), 2 U relative.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

U = 2.0**-24
CONFIDENCE = 6.0


def f32(x: Tensor) -> Tensor:
    """``x`` (float64) rounded to float32, as float64."""
    return x.float().double()


def unit(x: Tensor, mantissa: int, least: int) -> Tensor:
    """The spacing of a binary format at ``x``.

    ``mantissa`` is the number of stored mantissa bits, ``least`` the exponent of the smallest normal.
    """
    exponent = torch.frexp(x.abs()).exponent.double() - 1
    exponent = torch.where(x == 0, torch.full_like(exponent, least), exponent)
    return torch.exp2(exponent.clamp(min=least) - mantissa)


def unit_f32(x: Tensor) -> Tensor:
    """float32's spacing at ``x``."""
    return unit(x, 23, -126)


@dataclass(frozen=True, slots=True)
class Bounded:
    """``value`` (float64) and the largest distance ``bound`` that a correct result may have from it."""

    value: Tensor
    bound: Tensor

    def __getitem__(self, index: object) -> Bounded:
        return Bounded(self.value[index], self.bound[index])  # type: ignore[index]

    @property
    def shape(self) -> torch.Size:
        """The shape of both parts."""
        return self.value.shape

    def map(self, change: Callable[[Tensor], Tensor]) -> Bounded:
        """The same numbers in another shape or order."""
        return Bounded(change(self.value), change(self.bound))

    def __neg__(self) -> Bounded:
        return Bounded(-self.value, self.bound)

    def __add__(self, other: Bounded) -> Bounded:
        return _rounded(self.value + other.value, self.bound + other.bound)

    def __sub__(self, other: Bounded) -> Bounded:
        return self + -other

    def __mul__(self, other: Bounded) -> Bounded:
        return _rounded(self.value * other.value, _product_error(self, other))

    def __truediv__(self, other: Bounded) -> Bounded:
        """IEEE division by something away from zero."""
        value = self.value / other.value
        error = (self.bound + value.abs() * other.bound) / (other.value.abs() - other.bound)
        return _rounded(value, error)


def split(x: Tensor, dim: int, *sizes: int) -> Tensor:
    """``x`` with dimension ``dim`` cut into these (one may be -1)."""
    at = dim % x.dim()
    return x.reshape(*x.shape[:at], *sizes, *x.shape[at + 1 :])


def exact(x: Tensor) -> Bounded:
    """A tensor of any dtype that is known exactly."""
    value = x.double()
    return Bounded(value, torch.zeros_like(value))


def constant(x: float, like: Bounded) -> Bounded:
    """The float32 nearest to ``x`` in ``like``'s shape."""
    return exact(torch.full_like(like.value, x).float())


def stack(parts: list[Bounded], dim: int) -> Bounded:
    """Several numbers of one shape along a new dimension."""
    return Bounded(
        torch.stack([p.value for p in parts], dim), torch.stack([p.bound for p in parts], dim)
    )


def cat(parts: list[Bounded], dim: int) -> Bounded:
    """Several numbers one after the other along ``dim``."""
    return Bounded(
        torch.cat([p.value for p in parts], dim), torch.cat([p.bound for p in parts], dim)
    )


def where(condition: Tensor, a: Bounded, b: Bounded) -> Bounded:
    """``a`` where ``condition`` holds, else ``b``."""
    return Bounded(
        torch.where(condition, a.value, b.value), torch.where(condition, a.bound, b.bound)
    )


def clamp(x: Bounded, low: float | None = None, high: float | None = None) -> Bounded:
    """``x`` kept between two float32 limits."""
    value = x.value.clamp(low, high)
    up = (x.value + x.bound).clamp(low, high) - value
    down = value - (x.value - x.bound).clamp(low, high)
    return Bounded(value, torch.maximum(up, down))


def fma(a: Bounded, b: Bounded, c: Bounded) -> Bounded:
    """``a b + c`` with one rounding."""
    product = a.value * b.value  # exact: two float32 in a float64
    total = product + c.value
    # The float64 sum is made odd when it is inexact, so that rounding it again gives the true nearest.
    back = total - product
    rest = (product - (total - back)) + (c.value - back)
    bits = total.view(torch.int64)
    away = ((rest > 0) == (total > 0)).to(torch.int64) * 2 - 1
    odd = torch.where((rest != 0) & (bits % 2 == 0), bits + torch.where(away < 0, -1, 1), bits)
    return _rounded(odd.view(torch.float64), _product_error(a, b) + c.bound)


def largest(x: Bounded, dim: int) -> Bounded:
    """The maximum along ``dim``."""
    value = x.value.amax(dim)
    up = (x.value + x.bound).amax(dim) - value
    down = value - (x.value - x.bound).amax(dim)
    return Bounded(value, torch.maximum(up, down))


def absolute(x: Bounded) -> Bounded:
    """``|x|``."""
    return Bounded(x.value.abs(), x.bound)


def monotone(x: Bounded, function: Callable[[Tensor], Tensor], ulps: float) -> Bounded:
    """A monotone function, computed to ``ulps`` units in the last place of float32."""
    value = function(x.value)
    spread = torch.maximum(
        (function(x.value + x.bound) - value).abs(), (value - function(x.value - x.bound)).abs()
    )
    return Bounded(f32(value), spread + ulps * unit_f32(value) + U * value.abs())


def total(x: Bounded, dim: int, depth: int) -> Bounded:
    """A float32 sum along ``dim``, its additions ``depth`` deep."""
    value = f32(x.value.sum(dim))
    spread = x.value.square().sum(dim).sqrt()
    inherited = CONFIDENCE * x.bound.square().sum(dim).sqrt()
    return Bounded(value, inherited + _sum_error(value, spread, depth))


def linear(weight: Tensor, x: Bounded, depth: int) -> Bounded:
    """``x weight^T``: [..., K] by [N, K] gives [..., N], exact products, a float32 sum ``depth`` deep."""
    w = weight.double()
    value = f32(x.value @ w.T)
    squares = w.float().square().T
    spread = (x.value.float().square() @ squares).sqrt().double()
    error = _sum_error(value, spread, depth)
    if bool(x.bound.any()):
        error = error + CONFIDENCE * (x.bound.float().square() @ squares).sqrt().double()
    return Bounded(value, error)


def product(a: Bounded, b: Bounded) -> Bounded:
    """``a b``: [..., M, K] by [..., K, N], exact products, a plain float32 sum over K."""
    value = f32(a.value @ b.value)
    spread = (a.value.square() @ b.value.square()).sqrt()
    inherited = (a.bound.square() @ (b.value.abs() + b.bound).square()) + (
        a.value.square() @ b.bound.square()
    )
    return Bounded(value, CONFIDENCE * inherited.sqrt() + _sum_error(value, spread, a.shape[-1]))


def bf16(x: Bounded) -> Bounded:
    """``x`` rounded to bfloat16."""
    return rounded(x, lambda v: v.float().bfloat16().double())


def rounded(x: Bounded, rounding: Callable[[Tensor], Tensor]) -> Bounded:
    """``x`` by a monotone rounding: the bound is zero unless an edge lies within it."""
    value = rounding(x.value)
    up = rounding(x.value + x.bound) - value
    down = value - rounding(x.value - x.bound)
    return Bounded(value, torch.maximum(up, down))


def _rounded(value: Tensor, error: Tensor) -> Bounded:
    result = f32(value)
    # Two inputs that differ round apart by one more unit at most.
    return Bounded(result, torch.where(error > 0, error + unit_f32(result), error))


def _product_error(a: Bounded, b: Bounded) -> Tensor:
    return a.value.abs() * b.bound + a.bound * (b.value.abs() + b.bound)


def _sum_error(value: Tensor, spread: Tensor, depth: int) -> Tensor:
    # A sum of at most one nonzero term is exact.
    error = CONFIDENCE * U * depth**0.5 * (3 * spread + value.abs())
    return torch.where(spread > 0, error, torch.zeros_like(error))
