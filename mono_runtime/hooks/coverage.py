"""Whether a store has every launch that a server can ask for, and what it has in place of those it lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from mono_runtime.canonical import Json
from mono_runtime.hooks.deployments import Planned
from mono_runtime.launch_key import LaunchKey
from mono_runtime.nearest import Miss, explain


@dataclass(frozen=True, slots=True)
class WidthCoverage:
    """The launches of steps of ``rows`` rows: how many there are, and how many the store lacks."""

    rows: int
    needed: int
    missing: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """A store against a server.

    Attributes:
        planned: the server.
        found: its launches that the store has.
        missing: the others, each with the nearest entries of the store.
    """

    planned: Planned
    found: tuple[LaunchKey, ...]
    missing: tuple[Miss, ...]

    @property
    def covered(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing

    @property
    def needed(self) -> int:
        """How many launches the server can ask for."""
        return len(self.found) + len(self.missing)

    @property
    def widths(self) -> tuple[WidthCoverage, ...]:
        """The widths of the server's steps, ascending."""
        needed = Counter(map(self._rows, self.planned.keys))
        missing = Counter(self._rows(m.key) for m in self.missing)
        return tuple(WidthCoverage(n, needed[n], missing[n]) for n in sorted(needed))

    @property
    def served(self) -> tuple[int, ...]:
        """The widths of which no launch is missing."""
        return tuple(w.rows for w in self.widths if not w.missing)

    def _rows(self, key: LaunchKey) -> int:
        return int(key.values[self.planned.family.rows_field])

    def to_json(self) -> Json:
        deployment = self.planned.deployment
        settings = {
            n: list(v) if isinstance(v, tuple) else v for n, v in deployment.settings.items()
        }
        return {
            "family": self.planned.family.name,
            "arch": deployment.arch,
            "tp": deployment.tp,
            "deployment": settings,
            "notes": list(self.planned.notes),
            "covered": self.covered,
            "needed": self.needed,
            "found": len(self.found),
            "widths": [
                {"rows": w.rows, "needed": w.needed, "missing": w.missing} for w in self.widths
            ],
            "missing": [_miss_json(m) for m in self.missing],
        }


def coverage(held: Collection[LaunchKey], planned: Planned) -> Coverage:
    """``held``, the launches of a store, against what ``planned`` asks for."""
    have = frozenset(held)
    found = tuple(key for key in planned.keys if key in have)
    missing = tuple(explain(key, held) for key in planned.keys if key not in have)
    return Coverage(planned, found, missing)


def _miss_json(miss: Miss) -> Json:
    return {
        "key": miss.key.to_json(),
        "key_digest": miss.key.digest,
        "reason": miss.reason,
        "known": list(miss.known),
        "nearest": [
            {
                "key": entry.key.to_json(),
                "differences": [
                    {"field": d.name, "wanted": d.wanted, "stored": d.stored}
                    for d in entry.differences
                ],
            }
            for entry in miss.nearest
        ],
    }
