"""The router: which experts a token takes, and with what weights."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from mono_build.emulator.references.bounded import Bounded, constant, exact, linear, monotone, where
from mono_build.emulator.references.deepseek_v41.geometry import ROUTED_SCALE

LOG2E = 1.4426950408889634
LN2 = 0.6931471805599453
LANES = 64
# Depth of a logit's sum: four parts of K, each shared by eight waves.
PARTS = 4
LOGIT_DEPTH = 1280 // 8 + 8 + PARTS


@dataclass(frozen=True, slots=True)
class Route:
    """The picks [T, k], best first, and their weights [T, k]."""

    experts: Tensor
    weights: Bounded


def logits(weight: Tensor, x: Bounded) -> Bounded:
    """``x`` [T, 5120] bfloat16 by ``weight`` [E, 5120] bfloat16, float32. Tolerance: `linear`."""
    return linear(weight, x, LOGIT_DEPTH)


def scores(raw: Bounded) -> Bounded:
    """``sqrt(softplus(x))``, with softplus(x) = x above 20.

    Tolerance: one unit each of v_exp_f32 and v_log_f32, two of the square root (v_sqrt_f32, refined).
    """
    power = monotone(raw * constant(LOG2E, raw), torch.exp2, 1)
    soft = monotone(constant(1.0, raw) + power, torch.log2, 1) * constant(LN2, raw)
    return monotone(where(raw.value > 20, raw, soft), torch.sqrt, 2)


def ranks(score: Bounded, bias: Tensor) -> Bounded:
    """What picks are chosen by: the score plus the bias [E], in float32."""
    return score + exact(bias.expand(score.shape))


def best(ranked: Bounded, picks: int) -> Tensor:
    """The ``picks`` experts of the largest rank, best first: [T, picks].

    Of equal ones the lower ``expert % 64`` comes first, then the lower expert, as the kernels' 64 lanes
    find them. (Which of two equal experts is taken is the kernel's own choice; the model does not say.)
    """
    experts = torch.zeros(ranked.shape[0], picks, dtype=torch.int64)
    for t, row in enumerate(ranked.value.tolist()):
        order = sorted(range(len(row)), key=lambda e: (-row[e], e % LANES, e))
        experts[t] = torch.tensor(order[:picks])
    return experts


def possible(ranked: Bounded, experts: Tensor) -> Tensor:
    """Whether [T] a correct kernel may pick these [T, k], in this order, given the ranks' bounds.

    No pick lies surely below the one after it, none of the others surely above the last; equal ranks
    come in the order of `best`.
    """
    result = torch.ones(len(experts), dtype=torch.bool)
    low, high = ranked.value - ranked.bound, ranked.value + ranked.bound
    for t, picked in enumerate(experts.tolist()):
        others = [e for e in range(ranked.shape[1]) if e not in picked]
        pairs = [*pairwise(picked), *((picked[-1], e) for e in others)]
        result[t] = len(set(picked)) == len(picked) and all(
            _may_precede(ranked.value[t], high[t], low[t], a, b) for a, b in pairs
        )
    return result


def weigh(score: Bounded, experts: Tensor) -> Route:
    """The picks' weights: their scores, scaled to a sum of 1.5.

    Tolerance of a weight: its score, the sum of the picks' and a division.
    """
    chosen = score.map(lambda v: v.gather(1, experts))
    summed = constant(0.0, chosen[:, 0])
    for k in range(experts.shape[1]):
        summed = summed + chosen[:, k]
    factor = constant(ROUTED_SCALE, summed) / summed
    return Route(experts, chosen * factor.map(lambda v: v[:, None]))


def route(raw: Bounded, bias: Tensor, picks: int) -> Route:
    """Pick and weigh by the logits [T, E]."""
    score = scores(raw)
    return weigh(score, best(ranks(score, bias), picks))


def _may_precede(value: Tensor, high: Tensor, low: Tensor, a: int, b: int) -> bool:
    if value[a] == value[b]:
        return (a % LANES, a) < (b % LANES, b)
    return bool(high[a] >= low[b])
