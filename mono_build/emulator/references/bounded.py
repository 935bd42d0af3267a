"""Numbers with an uncertainty: what a kernel must compute, and how far it may be off.

A reference follows a kernel's rounding points. Where the kernel's result does not depend on anything
but its inputs (IEEE operations in a stated order), the reference gives the same bits and the
uncertainty is zero. Where it does depend (the order of a sum, a hardware approximation), the result is
a value with a bound, and both are carried through the following stages: a value near the edge of a
coarse format may round either way, and then the bound holds one step of that format.

**Two figures.** ``bound`` is the most that an element may differ by; it is what a comparison allows.
``sigma`` is its standard uncertainty, the root of the mean squared error: a value that may fall on the
other side of an edge has a bound of one step, but a sigma of a step times the root of the probability.
Sums take squares of sigmas, and their bound is 6 of them (a normal error exceeds that once in 10^9);
without the distinction a dozen improbable steps in each of four quantisations would allow anything.

**Sums.** A float32 sum of terms ``t`` whose additions form a tree of depth ``d`` (``d`` is the number
of terms for a plain loop) rounds every partial sum by at most ``U = 2^-24`` relative. A partial sum of
a part ``p`` of the terms stays within ``3 |p|_2 + |sum|``, and the parts of one level of the tree are
disjoint, so the squares of all partial sums add up to at most ``d (3 |t|_2 + |sum|)^2``: a sum's own
sigma is ``U sqrt(d) (3 |t|_2 + |sum|)``. (By Hoeffding's inequality even the worst independent errors
of these sizes exceed 6 sigma with a probability below 2^-24.) A matrix instruction is taken as a plain
loop over its products: in which order it adds them is not documented.

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
    """``value`` (float64), the largest distance ``bound`` of a correct result from it, and ``sigma``."""

    value: Tensor
    bound: Tensor
    sigma: Tensor

    def __getitem__(self, index: object) -> Bounded:
        return self.map(lambda v: v[index])  # type: ignore[index]

    @property
    def shape(self) -> torch.Size:
        """The shape of all parts."""
        return self.value.shape

    @property
    def certain(self) -> bool:
        """Whether nothing may differ."""
        return not bool(self.bound.any())

    def map(self, change: Callable[[Tensor], Tensor]) -> Bounded:
        """The same numbers in another shape or order."""
        return Bounded(change(self.value), change(self.bound), change(self.sigma))

    def expand(self, shape: torch.Size) -> Bounded:
        """The same numbers repeated to this shape."""
        return self.map(lambda v: v.expand(shape))

    def __neg__(self) -> Bounded:
        return Bounded(-self.value, self.bound, self.sigma)

    def __add__(self, other: Bounded) -> Bounded:
        sigma = (self.sigma.square() + other.sigma.square()).sqrt()
        return _rounded(self.value + other.value, self.bound + other.bound, sigma)

    def __sub__(self, other: Bounded) -> Bounded:
        return self + -other

    def __mul__(self, other: Bounded) -> Bounded:
        return _rounded(self.value * other.value, *_product_error(self, other))

    def __truediv__(self, other: Bounded) -> Bounded:
        """IEEE division by something away from zero."""
        value = self.value / other.value
        error = (self.bound + value.abs() * other.bound) / (other.value.abs() - other.bound)
        squares = self.sigma.square() + (value * other.sigma).square()
        return _rounded(value, error, squares.sqrt() / other.value.abs())


def split(x: Tensor, dim: int, *sizes: int) -> Tensor:
    """``x`` with dimension ``dim`` cut into these (one may be -1)."""
    at = dim % x.dim()
    return x.reshape(*x.shape[:at], *sizes, *x.shape[at + 1 :])


def exact(x: Tensor) -> Bounded:
    """A tensor of any dtype that is known exactly."""
    value = x.double()
    return Bounded(value, torch.zeros_like(value), torch.zeros_like(value))


def uncertain(x: Tensor, bound: Tensor) -> Bounded:
    """A tensor whose elements are off by as much as ``bound``, all of them."""
    return Bounded(x.double(), bound.double(), bound.double())


def constant(x: float, like: Bounded) -> Bounded:
    """The float32 nearest to ``x`` in ``like``'s shape."""
    return exact(torch.full_like(like.value, x).float())


def stack(parts: list[Bounded], dim: int) -> Bounded:
    """Several numbers of one shape along a new dimension."""
    return _joined(parts, lambda tensors: torch.stack(tensors, dim))


def cat(parts: list[Bounded], dim: int) -> Bounded:
    """Several numbers one after the other along ``dim``."""
    return _joined(parts, lambda tensors: torch.cat(tensors, dim))


def where(condition: Tensor, a: Bounded, b: Bounded) -> Bounded:
    """``a`` where ``condition`` holds, else ``b``."""
    return _joined([a, b], lambda pair: torch.where(condition, pair[0], pair[1]))


def clamp(x: Bounded, low: float | None = None, high: float | None = None) -> Bounded:
    """``x`` kept between two float32 limits."""
    return rounded(x, lambda v: v.clamp(low, high))


def fma(a: Bounded, b: Bounded, c: Bounded) -> Bounded:
    """``a b + c`` with one rounding."""
    product = a.value * b.value  # exact: two float32 in a float64
    total = product + c.value
    # The float64 sum is made odd when it is inexact, so that rounding it again gives the true nearest.
    back = total - product
    rest = (product - (total - back)) + (c.value - back)
    bits = total.view(torch.int64)
    away = torch.where((rest > 0) == (total > 0), 1, -1)
    odd = torch.where((rest != 0) & (bits % 2 == 0), bits + away, bits)
    error, sigma = _product_error(a, b)
    sigma = (sigma.square() + c.sigma.square()).sqrt()
    return _rounded(odd.view(torch.float64), error + c.bound, sigma)


def largest(x: Bounded, dim: int) -> Bounded:
    """The maximum along ``dim``."""
    value, place = x.value.max(dim)
    up = (x.value + x.bound).amax(dim) - value
    down = value - (x.value - x.bound).amax(dim)
    sigma = x.sigma.gather(dim, place.unsqueeze(dim)).squeeze(dim)
    return Bounded(value, torch.maximum(up, down), sigma)


def absolute(x: Bounded) -> Bounded:
    """``|x|``."""
    return Bounded(x.value.abs(), x.bound, x.sigma)


def square(x: Bounded) -> Bounded:
    """``x^2`` before any rounding."""
    magnitude = 2 * x.value.abs()
    error = magnitude * x.bound + x.bound.square()
    return Bounded(x.value.square(), error, magnitude * x.sigma + x.sigma.square())


def monotone(x: Bounded, function: Callable[[Tensor], Tensor], ulps: float) -> Bounded:
    """A monotone function, computed to ``ulps`` units in the last place of float32."""
    value = function(x.value)
    own = ulps * unit_f32(value) + U * value.abs()
    return Bounded(
        f32(value),
        _reach(x.value, x.bound, value, function) + own,
        _reach(x.value, x.sigma, value, function) + own,
    )


def total(x: Bounded, dim: int, depth: int) -> Bounded:
    """A float32 sum along ``dim``, its additions ``depth`` deep."""
    spread = x.value.square().sum(dim).sqrt()
    return _summed(x.value.sum(dim), spread, depth, x.sigma.square().sum(dim))


def linear(weight: Tensor, x: Bounded, depth: int) -> Bounded:
    """``x weight^T``: [..., K] by [N, K] gives [..., N], exact products, a float32 sum ``depth`` deep."""
    squares = weight.float().square().T
    spread = (x.value.float().square() @ squares).sqrt().double()
    variance = torch.zeros_like(spread)
    if not x.certain:
        variance = (x.sigma.float().square() @ squares).double()
    return _summed(x.value @ weight.double().T, spread, depth, variance)


def product(a: Bounded, b: Bounded) -> Bounded:
    """``a b``: [..., M, K] by [..., K, N], exact products, a plain float32 sum over K."""
    spread = (a.value.square() @ b.value.square()).sqrt()
    variance = a.sigma.square() @ (b.value.square() + b.sigma.square())
    variance = variance + a.value.square() @ b.sigma.square()
    return _summed(a.value @ b.value, spread, a.shape[-1], variance)


def bf16(x: Bounded) -> Bounded:
    """``x`` rounded to bfloat16."""
    return rounded(x, lambda v: v.float().bfloat16().double())


def rounded(x: Bounded, rounding: Callable[[Tensor], Tensor]) -> Bounded:
    """``x`` by a monotone rounding: the bound is zero unless an edge lies within it."""
    value = rounding(x.value)
    if x.certain:
        return exact(value)
    bound = _reach(x.value, x.bound, value, rounding)
    return Bounded(value, bound, torch.minimum(bound, deviation(x, value, rounding)))


def deviation(x: Bounded, value: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """The root of the mean squared distance of ``function`` from ``value`` under a normal error of ``x``."""
    nodes = torch.linspace(-4, 4, 17, dtype=torch.float64)
    weights = torch.exp(-nodes.square() / 2)
    squares = torch.zeros_like(value)
    for node, weight in zip(nodes.tolist(), (weights / weights.sum()).tolist(), strict=True):
        squares += weight * (function(x.value + node * x.sigma) - value).square()
    return squares.sqrt()


def _reach(x: Tensor, error: Tensor, value: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    return torch.maximum((function(x + error) - value).abs(), (value - function(x - error)).abs())


def _joined(parts: list[Bounded], join: Callable[[list[Tensor]], Tensor]) -> Bounded:
    return Bounded(
        join([p.value for p in parts]),
        join([p.bound for p in parts]),
        join([p.sigma for p in parts]),
    )


def _rounded(value: Tensor, error: Tensor, sigma: Tensor) -> Bounded:
    result = f32(value)
    # Two inputs that differ round apart by one more unit at most.
    more = torch.where(error > 0, unit_f32(result), 0.0)
    return Bounded(result, error + more, sigma + more / 2)


def _product_error(a: Bounded, b: Bounded) -> tuple[Tensor, Tensor]:
    error = a.value.abs() * b.bound + a.bound * (b.value.abs() + b.bound)
    squares = (a.value * b.sigma).square() + a.sigma.square() * (b.value.abs() + b.sigma).square()
    return error, squares.sqrt()


def _summed(value: Tensor, spread: Tensor, depth: int, variance: Tensor) -> Bounded:
    own = U * depth**0.5 * (3 * spread + value.abs())
    # A sum of nothing but zeros is exact.
    sigma = (torch.where(spread > 0, own, 0.0).square() + variance).sqrt()
    return Bounded(f32(value), CONFIDENCE * sigma, sigma)
