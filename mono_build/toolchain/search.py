"""Looking for a thing in several places, keeping what each place had to say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from mono_build.errors import ToolchainError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """One place that was looked at, and what was there: ``used``, ``absent`` or a reason."""

    where: str
    outcome: str


@dataclass(frozen=True, slots=True)
class Search(Generic[T]):
    """The outcome of a search.

    Attributes:
        found: what was found and can be used, or None.
        looked: every place, in the order they were tried.
        problem: one sentence for the operator when nothing was found.
        fix: how to get it.
        unsupported: something was found that cannot be used.
    """

    found: T | None
    looked: tuple[Place, ...]
    problem: str = ""
    fix: str = ""
    unsupported: bool = False

    def need(self) -> T:
        """What was found; a `ToolchainError` that lists the places otherwise."""
        if self.found is None:
            places = "; ".join(f"{place.where}: {place.outcome}" for place in self.looked)
            raise ToolchainError(self.problem, where=places or None, fix=self.fix)
        return self.found
