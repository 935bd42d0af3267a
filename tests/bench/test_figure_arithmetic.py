"""The arithmetic of the bench: ratios, straight lines, dealing, and how a table says it."""

from __future__ import annotations

import pytest
from figures.figure import Bound, Figure, Goal, Verdict
from figures.samples import dealt, interpolate, median_ratio, spread
from figures.table import amount, render


def test_ratios_are_taken_within_a_round() -> None:
    # The second round ran on a machine that had become three times slower.
    assert median_ratio([10.0, 33.0, 12.0], [10.0, 30.0, 10.0]) == pytest.approx(1.1)


def test_the_median_of_two_rounds_is_their_mean() -> None:
    assert median_ratio([1.0, 3.0], [2.0, 2.0]) == 1.0


@pytest.mark.parametrize(
    ("numerators", "denominators"), [([], []), ([1.0], []), ([1.0, 2.0], [1.0]), ([1.0], [0.0])]
)
def test_samples_that_cannot_be_paired_are_refused(
    numerators: list[float], denominators: list[float]
) -> None:
    with pytest.raises(ValueError, match=r"paired|positive"):
        median_ratio(numerators, denominators)


@pytest.mark.parametrize(
    ("x", "value"), [(6, 1.0), (15, 2.0), (24, 3.0), (36, 5.0), (42, 6.0), (48, 7.0)]
)
def test_values_between_samples_lie_on_straight_lines(x: int, value: float) -> None:
    assert interpolate({6: 1.0, 48: 7.0, 24: 3.0}, x) == pytest.approx(value)


@pytest.mark.parametrize("x", [5, 49])
def test_nothing_is_guessed_outside_of_the_samples(x: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        interpolate({6: 1.0, 48: 7.0}, x)


def test_launches_are_dealt_in_turn_by_falling_cost() -> None:
    costs = [(3.0, 0), (13.0, 1), (3.0, 2), (14.0, 3), (13.0, 4)]
    assert dealt(costs, 2) == [[3, 4, 2], [1, 0]]


def test_nothing_to_deal_leaves_empty_hands() -> None:
    assert dealt([], 2) == [[], []]


@pytest.mark.parametrize(
    ("widths", "chosen"),
    [
        ([6, 12, 18, 24, 36, 42, 48], (6, 24, 48)),
        ([48, 6], (6, 48)),
        ([8], (8,)),
        ([1, 2, 3, 1], (1, 2, 3)),
    ],
)
def test_a_sample_of_widths_spans_the_range(widths: list[int], chosen: tuple[int, ...]) -> None:
    assert spread(widths) == chosen


@pytest.mark.parametrize(
    ("goal", "value", "verdict"),
    [
        (Goal(1.1), 1.1, Verdict.MET),
        (Goal(1.1), 1.1001, Verdict.MISSED),
        (Goal(84, Bound.EXACT), 84, Verdict.MET),
        (Goal(84, Bound.EXACT), 83, Verdict.MISSED),
        (Goal(5, Bound.LEAST), 5, Verdict.MET),
        (Goal(5, Bound.LEAST), 4.99, Verdict.MISSED),
        (None, 5, Verdict.NONE),
    ],
)
def test_a_goal_is_met_or_missed(goal: Goal | None, value: float, verdict: Verdict) -> None:
    assert Figure("part", "what", value, goal=goal).verdict is verdict


def test_a_reduced_sample_is_not_judged() -> None:
    figure = Figure("part", "what", 9, goal=Goal(1), judged=False)
    assert figure.verdict is Verdict.NONE
    assert figure.to_json()["verdict"] == "-"


def test_a_figure_in_json() -> None:
    figure = Figure("cpu", "ratio", 1.25, digits=2, goal=Goal(1.1), samples={"cpu": [1.0]})
    assert figure.to_json() == {
        "part": "cpu",
        "what": "ratio",
        "value": 1.25,
        "unit": "",
        "goal": {"kind": "at most", "value": 1.1},
        "verdict": "missed",
        "samples": {"cpu": [1.0]},
    }


@pytest.mark.parametrize(
    ("value", "unit", "digits", "text"),
    [
        (1234567, "bytes", 0, "1,234,567 bytes"),
        (1.0996, "", 3, "1.100"),
        (0.0, "s", 2, "0.00 s"),
    ],
)
def test_amounts(value: float, unit: str, digits: int, text: str) -> None:
    assert amount(value, unit, digits) == text


def test_the_table_is_aligned_markdown() -> None:
    figures = [
        Figure("plans", "V4.1", 84, "keys", goal=Goal(84, Bound.EXACT)),
        Figure("cpu", "cold build", 1.234, digits=2, goal=Goal(1.1)),
        Figure("size", "informs", 7),
        Figure("speed", "rate", 6.04, "M/s", 1, Goal(5, Bound.LEAST)),
    ]
    assert render(figures).splitlines() == [
        "| part  | what       | goal       | measured | verdict |",
        "| ----- | ---------- | ---------- | -------- | ------- |",
        "| plans | V4.1       | = 84 keys  | 84 keys  | met     |",
        "| cpu   | cold build | <= 1.10    | 1.23     | missed  |",
        "| size  | informs    | -          | 7        | -       |",
        "| speed | rate       | >= 5.0 M/s | 6.0 M/s  | met     |",
    ]
