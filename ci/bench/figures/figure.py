"""One measured figure, its goal, and whether the goal is met."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Verdict(Enum):
    """``NONE``: the figure has no goal, or a reduced sample says nothing about it."""

    MET = "met"
    MISSED = "missed"
    NONE = "-"


class Bound(Enum):
    """How a figure is held against its goal: in words for the JSON report; see `SIGNS` for the table."""

    MOST = "at most"
    LEAST = "at least"
    EXACT = "exactly"


SIGNS = {Bound.MOST: "<=", Bound.LEAST: ">=", Bound.EXACT: "="}


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure should be: at most ``value``, at least that, or exactly that."""

    value: float
    bound: Bound = Bound.MOST

    def met(self, value: float) -> bool:
        """Whether ``value`` reaches the goal."""
        if self.bound is Bound.EXACT:
            return value == self.value
        return value <= self.value if self.bound is Bound.MOST else value >= self.value


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table.

    Attributes:
        part: the part of the bench that measured it.
        what: what was measured, in words.
        value: in ``unit``.
        digits: decimals that are shown.
        goal: None for a figure that only informs.
        judged: False for a reduced sample, whose value is no answer to the goal.
        samples: raw measurements, for the JSON report.
    """

    part: str
    what: str
    value: float
    unit: str = ""
    digits: int = 0
    goal: Goal | None = None
    judged: bool = True
    samples: dict[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """Whether the goal is met, where there is one."""
        if self.goal is None or not self.judged:
            return Verdict.NONE
        return Verdict.MET if self.goal.met(self.value) else Verdict.MISSED

    def to_json(self) -> dict[str, Any]:
        goal = self.goal and {
            "kind": self.goal.bound.value,
            "value": self.goal.value,
        }
        return {
            "part": self.part,
            "what": self.what,
            "value": self.value,
            "unit": self.unit,
            "goal": goal,
            "verdict": self.verdict.value,
            "samples": self.samples,
        }
