"""Arithmetic over raw samples. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median


def median_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """The median of the ratios of samples that were taken next to each other.

    A ratio within a round cancels what changed on the machine between rounds, which a ratio of
    medians would not. Raises `ValueError` for no or unpaired samples, or a denominator that is not
    positive.
    """
    if not numerators or len(numerators) != len(denominators):
        raise ValueError(f"{len(numerators)} samples cannot be paired with {len(denominators)}")
    if min(denominators) <= 0:
        raise ValueError("a denominator is not positive")
    return median(a / b for a, b in zip(numerators, denominators, strict=True))


def interpolate(points: Mapping[int, float], x: int) -> float:
    """The value at ``x`` on straight lines between ``points``.

    Raises `ValueError` outside of the measured range: there a line would be a guess.
    """
    if x in points:
        return points[x]
    below = max((p for p in points if p < x), default=None)
    above = min((p for p in points if p > x), default=None)
    if below is None or above is None:
        raise ValueError(f"{x} is outside of what was measured: {sorted(points)}")
    share = (x - below) / (above - below)
    return points[below] + share * (points[above] - points[below])


def dealt(costs: Iterable[tuple[float, int]], hands: int) -> list[list[int]]:
    """Items dealt in turn to ``hands`` by falling cost: for each hand, the items' numbers.

    Args:
        costs: (cost, number) of each item; equal costs keep the order of the numbers.
    """
    order = [number for _, number in sorted(costs, key=lambda c: (-c[0], c[1]))]
    return [order[hand::hands] for hand in range(hands)]


def spread(values: Sequence[int]) -> tuple[int, ...]:
    """The smallest, the one in the middle of the range, and the largest of ``values``, no repeats."""
    low, high = min(values), max(values)
    middle = min(set(values), key=lambda v: (abs(v - (low + high) / 2), v))
    return tuple(sorted({low, middle, high}))
