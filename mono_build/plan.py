"""The plan: the launch keys to build, without repeats and in one order, and selections from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from mono_runtime.canonical import Json
from mono_runtime.launch_key import LaunchKey

# The build fields that hold a width; every built-in family says tokens.
_ROWS_FIELDS = ("tokens", "rows")


@dataclass(frozen=True, slots=True)
class Pins:
    """Versions that a manifest asks for: PEP 440 specifiers (``>=0.4.2,<0.6``) or exact versions."""

    flydsl: str | None = None
    lld: str | None = None
    kernels: str | None = None
    python: str | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """What a command line restricts a plan or a store to; an empty tuple is no restriction.

    Attributes:
        archs: base architecture names.
        tps: tensor-parallel sizes. A key without ``tp`` serves every size.
        families: family names.
        rows: step widths.
        launches: launch names.
    """

    archs: tuple[str, ...] = ()
    tps: tuple[int, ...] = ()
    families: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()
    launches: tuple[str, ...] = ()

    def accepts(self, key: LaunchKey) -> bool:
        """Whether ``key`` meets every restriction."""
        tp, rows = key.values.get("tp"), rows_of(key)
        return (
            (not self.archs or key.arch in self.archs)
            and (not self.tps or tp is None or tp in self.tps)
            and (not self.families or key.family in self.families)
            and (not self.rows or rows in self.rows)
            and (not self.launches or key.launch in self.launches)
        )

    def restrictions(self) -> list[tuple[str, Selection]]:
        """Each restriction that is set, as its command-line form and alone."""
        each = (
            ("--arch", self.archs, Selection(archs=self.archs)),
            ("--tp", self.tps, Selection(tps=self.tps)),
            ("--family", self.families, Selection(families=self.families)),
            ("--rows", self.rows, Selection(rows=self.rows)),
            ("--launch", self.launches, Selection(launches=self.launches)),
        )
        return [
            (" ".join(f"{option} {v}" for v in values), alone)
            for option, values, alone in each
            if values
        ]


@dataclass(frozen=True, slots=True)
class Count:
    """How many keys of a plan one launch of a family has on one architecture."""

    family: str
    arch: str
    launch: str
    keys: int


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """Launch keys in plan order; `of` makes one from keys in any order, with repeats."""

    keys: tuple[LaunchKey, ...]

    @staticmethod
    def of(keys: Iterable[LaunchKey]) -> BuildPlan:
        """The plan of ``keys``: each once, by family, architecture, launch and build key."""
        return BuildPlan(tuple(sorted(set(keys), key=lambda k: k.sort_key)))

    def __len__(self) -> int:
        return len(self.keys)

    def counts(self) -> tuple[Count, ...]:
        """The number of keys of each launch, in plan order."""
        found = Counter((k.family, k.arch, k.launch) for k in self.keys)
        return tuple(Count(*names, keys) for names, keys in sorted(found.items()))

    def narrowed(self, selection: Selection) -> BuildPlan:
        """The part that ``selection`` accepts; possibly nothing."""
        return BuildPlan(tuple(k for k in self.keys if selection.accepts(k)))

    def to_json(self) -> Json:
        return {
            "keys": [k.to_json() for k in self.keys],
            "counts": [
                {"family": c.family, "arch": c.arch, "launch": c.launch, "keys": c.keys}
                for c in self.counts()
            ],
        }


def rows_of(key: LaunchKey) -> int | None:
    """The width of ``key``, or None when its launch has none."""
    for name in _ROWS_FIELDS:
        rows = key.values.get(name)
        if isinstance(rows, int):
            return rows
    return None


def emptied_by(keys: Iterable[LaunchKey], selection: Selection) -> str:
    """Which restriction of ``selection`` leaves nothing of ``keys``, with what they have instead."""
    left = list(keys)
    for text, alone in selection.restrictions():
        kept = [k for k in left if alone.accepts(k)]
        if not kept:
            return f"{text} leaves nothing: {_offer(left, alone)}"
        left = kept
    return "no launch was asked for"


def _offer(keys: list[LaunchKey], alone: Selection) -> str:
    if alone.archs:
        what, values = "architectures", {k.arch for k in keys}
    elif alone.families:
        what, values = "families", {k.family for k in keys}
    elif alone.launches:
        what, values = "launches", {k.launch for k in keys}
    else:
        what = "TP sizes" if alone.tps else "widths"
        found = {k.values.get("tp") if alone.tps else rows_of(k) for k in keys}
        numbers = sorted(n for n in found if isinstance(n, int))
        return f"the {what} are {', '.join(map(str, numbers)) or 'none'}"
    return f"the {what} are {', '.join(sorted(values)) or 'none'}"
