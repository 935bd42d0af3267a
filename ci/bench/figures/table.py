"""Figures as a Markdown table that is also readable on a terminal. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from figures.figure import SIGNS, Figure

_HEADER = ("part", "what", "goal", "measured", "verdict")


def render(figures: Sequence[Figure]) -> str:
    """The table of ``figures``, one line each, columns aligned, no newline at the end."""
    rows = [_HEADER, *(_row(f) for f in figures)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADER))]
    rule = tuple("-" * width for width in widths)
    return "\n".join(_line(row, widths) for row in (rows[0], rule, *rows[1:]))


def amount(value: float, unit: str, digits: int) -> str:
    """``value`` with ``digits`` decimals, thousands separated, and its unit."""
    text = f"{value:,.{digits}f}"
    return f"{text} {unit}" if unit else text


def _row(figure: Figure) -> tuple[str, ...]:
    goal = figure.goal
    wanted = "-"
    if goal is not None:
        wanted = f"{SIGNS[goal.bound]} {amount(goal.value, figure.unit, figure.digits)}"
    measured = amount(figure.value, figure.unit, figure.digits)
    return (figure.part, figure.what, wanted, measured, figure.verdict.value)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
    return f"| {' | '.join(cells)} |"
