"""The hyper-connection seam: four residual streams, mixed before and after every sublayer.

A sublayer's input is a mix of the streams by ``pre``; its output ``x`` joins stream ``o`` as
``post[o] x + sum_h comb[h, o] r[h]``. The mixes come from the streams themselves, with ``comb`` made
nearly doubly stochastic by Sinkhorn's iteration. In V4.1 the ``pre`` that a seam computes is used by
the *next* seam.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mono_build.emulator.references.bounded import (
    CONFIDENCE,
    Bounded,
    U,
    bf16,
    constant,
    exact,
    fma,
    linear,
    monotone,
    split,
    square,
    stack,
    total,
    unit_f32,
)
from mono_build.emulator.references.deepseek_v41.geometry import (
    EPS,
    HIDDEN,
    MIX_EPS,
    MIXES,
    SINKHORN_STEPS,
    STREAMS,
)

LOG2E = 1.4426950408889634
# Depth of a seam's sums in the kernels, at most: 16 products in one wave (24 squares in a thread), 8 waves (6 + 2
# lanes), then 8 and 20 slices' parts.
SUM_DEPTH = 64


@dataclass(frozen=True, slots=True)
class Mixes:
    """A seam's mixes: ``post`` [T, 4], ``comb`` [T, 4 (from), 4 (to)], ``pre`` [T, 4]; float32."""

    post: Bounded
    comb: Bounded
    pre: Bounded


@dataclass(frozen=True, slots=True)
class MixWeights:
    """What makes the mixes: ``fn`` [24, 4 x 5120], ``scale`` [3], ``base`` [24]; float32."""

    fn: Tensor
    scale: Tensor
    base: Tensor


def fold(x: Bounded, residual: Bounded, post: Bounded, comb: Bounded) -> Bounded:
    """The residual after a sublayer: ``x`` [T, 5120], ``residual`` [T, 4, 5120] to [T, 4, 5120] bfloat16.

    ``((post x + c0 r0) + c1 r1) + c2 r2`` with each product rounded, then ``fma(c3, r3, ..)``, then
    bfloat16: IEEE operations in a stated order, so the result is exact given exact inputs. Otherwise
    tolerance: the inputs' errors, and one bfloat16 step where they reach an edge.
    """
    streams = []
    for o in range(STREAMS):
        value = post[:, o, None] * x + comb[:, 0, o, None] * residual[:, 0]
        for h in range(1, STREAMS - 1):
            value = value + comb[:, h, o, None] * residual[:, h]
        last = STREAMS - 1
        streams.append(bf16(fma(_wide(comb[:, last, o, None], value), residual[:, last], value)))
    return stack(streams, 1)


def collapse(residual: Bounded, pre: Bounded) -> Bounded:
    """A sublayer's input [T, 5120] bfloat16: the streams [T, 4, 5120] by ``pre`` [T, 4], in order.

    Products and sums are rounded one by one, so the result is exact given exact inputs.
    """
    value = constant(0.0, residual[:, 0])
    for h in range(STREAMS):
        value = value + pre[:, h, None] * residual[:, h]
    return bf16(value)


def mixes(residual: Bounded, weights: MixWeights) -> Mixes:
    """The mixes of the streams [T, 4, 5120].

    ``fn`` is applied as the sum of two bfloat16 (``bf16(f)`` and ``bf16(f - bf16(f))``), in float32.
    Tolerances: the sums over 20480 (`total`, `linear`), one unit each of v_rsq_f32, v_exp_f32 and the
    divisions; for ``comb`` see `sinkhorn`.
    """
    flat = residual.map(lambda v: v.flatten(1))
    high = weights.fn.bfloat16().float()
    fn = high + (weights.fn - high).bfloat16().float()
    squares = square(flat)
    mean = fma(
        total(squares, -1, SUM_DEPTH),
        constant(1 / (STREAMS * HIDDEN), squares[:, 0]),
        constant(EPS, squares[:, 0]),
    )
    rms = monotone(mean, torch.rsqrt, 1)
    logits = linear(fn, flat, SUM_DEPTH) * rms[:, None]
    scaled = []
    for part, (first, last) in enumerate(
        ((0, STREAMS), (STREAMS, 2 * STREAMS), (2 * STREAMS, MIXES))
    ):
        part_logits = logits[:, first:last]
        scaled.append(
            fma(
                part_logits,
                constant(float(weights.scale[part]), part_logits),
                exact(weights.base[first:last].expand(part_logits.shape)),
            )
        )
    pre, post = (_sigmoid(s) for s in scaled[:2])
    comb = scaled[2].map(lambda v: split(v, 1, STREAMS, STREAMS))
    return Mixes(post * constant(2.0, post), sinkhorn(comb), pre + constant(MIX_EPS, pre))


def sinkhorn(logits: Bounded) -> Bounded:
    """A softmax over rows of [T, 4, 4], then columns and rows in turn (20 column steps).

    The first row step adds ``1e-6`` after the division, the others in the denominator.

    Tolerance: the logits' by the derivatives of the whole iteration (differences in float64). What a
    correct computation adds at one of the 40 steps, at most five half-units (three sums, v_rcp_f32, a
    product), is a change of a logarithm, which the following steps pass on as they pass on a logit's;
    the exponential adds one unit, and two roundings of its argument.
    """
    value = _sinkhorn(logits.value)
    slopes = _slopes(logits.value)
    reach = slopes.square().sum((-1, -2)).sqrt() + value
    span = logits.value.amax((-1, -2)) - logits.value.amin((-1, -2))
    own = reach * (U * (3 * span + 4 + 5 * (2 * SINKHORN_STEPS) ** 0.5))[:, None, None]
    inherited = (slopes * logits.sigma[:, None, None]).square().sum((-1, -2))
    return Bounded(
        value,
        (slopes.abs() * logits.bound[:, None, None]).sum((-1, -2))
        + CONFIDENCE * own
        + unit_f32(value),
        (inherited + own.square()).sqrt(),
    )


def _sinkhorn(logits: Tensor) -> Tensor:
    value = torch.softmax(logits, -1) + MIX_EPS
    value = value / (value.sum(-2, keepdim=True) + MIX_EPS)
    for _ in range(SINKHORN_STEPS - 1):
        value = value / (value.sum(-1, keepdim=True) + MIX_EPS)
        value = value / (value.sum(-2, keepdim=True) + MIX_EPS)
    return value


def _slopes(logits: Tensor) -> Tensor:
    """Derivatives [T, 4, 4, 4, 4] of each result by each logit."""
    step = 1e-5
    slopes = torch.zeros(*logits.shape, STREAMS, STREAMS, dtype=torch.float64)
    for i in range(STREAMS):
        for j in range(STREAMS):
            moved = torch.zeros(STREAMS, STREAMS, dtype=torch.float64)
            moved[i, j] = step
            slopes[..., i, j] = (_sinkhorn(logits + moved) - _sinkhorn(logits - moved)) / (2 * step)
    return slopes


def norm(x: Bounded, weight: Tensor) -> Bounded:
    """RMS norm of ``x`` [T, 5120] by ``weight`` [5120] bfloat16: ``bf16((x r) w)``, eps 1e-20.

    Tolerance: ``r`` is off by its sum's error and one unit of v_rsq_f32 (some 2^-22 relative), so an
    element differs by one bfloat16 step where that reaches an edge, else not at all.
    """
    squares = square(x)
    mean = fma(
        total(squares, -1, SUM_DEPTH),
        constant(1 / HIDDEN, squares[:, 0]),
        constant(EPS, squares[:, 0]),
    )
    return bf16((x * monotone(mean, torch.rsqrt, 1)[:, None]) * exact(weight.expand(x.shape)))


def _sigmoid(x: Bounded) -> Bounded:
    power = monotone(x * constant(-LOG2E, x), torch.exp2, 1)
    return constant(1.0, x) / (constant(1.0, x) + power)


def _wide(x: Bounded, like: Bounded) -> Bounded:
    return x.map(lambda v: v.expand(like.shape))
