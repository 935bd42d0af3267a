"""The manifest: what to build, as read from one or more files and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mono_build.manifest.problem import Mark
from mono_build.plan import Pins
from mono_runtime.families.fields import Setting
from mono_runtime.launch_key import LaunchKey, Scalar

Values = tuple[tuple[str, tuple[Scalar, ...]], ...]


@dataclass(frozen=True, slots=True)
class Selector:
    """Launches to include or exclude: each named field must have one of the values.

    Attributes:
        values: ``launch``, ``arch``, ``tp``, ``rows`` or a build field, with its admitted values.
        mark: where it stands.
    """

    values: Values
    mark: Mark

    def matches(self, key: LaunchKey, tp: int, rows_field: str) -> bool:
        """Whether ``key``, planned for this TP size, has one of the values in every field."""
        facts: dict[str, Scalar] = {"tp": tp, **key.values}
        facts |= {"launch": key.launch, "arch": key.arch}
        if rows_field in facts:
            facts["rows"] = facts[rows_field]
        return all(name in facts and facts[name] in values for name, values in self.values)


@dataclass(frozen=True, slots=True)
class Variant:
    """Routing variants in place of those of the model's layers: every combination of the values.

    Attributes:
        launches: the launches that are built so.
        values: build fields that differ from their defaults, with one or more values each.
        mark: where it stands.
    """

    launches: tuple[str, ...]
    values: Values
    mark: Mark


@dataclass(frozen=True, slots=True)
class Entry:
    """One item of ``builds``.

    Attributes:
        archs: base architecture names; empty leaves them to the command line.
        tps: tensor-parallel sizes; empty stands for every legal one.
        settings: what the ``deployment`` section sets.
        settings_mark: where that section stands.
        rows: explicit widths in place of the deployment's, or empty.
        variants: in place of the deployment's, or empty.
        include, exclude: which of the launches stay.
        mark: where it stands.
        row_marks: where each of ``rows`` stands.
    """

    family: str
    archs: tuple[str, ...]
    tps: tuple[int, ...]
    mark: Mark
    settings: Mapping[str, Setting] = field(default_factory=dict)
    settings_mark: Mark | None = None
    rows: tuple[int, ...] = ()
    row_marks: tuple[Mark, ...] = ()
    variants: tuple[Variant, ...] = ()
    include: tuple[Selector, ...] = ()
    exclude: tuple[Selector, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything that was asked for, from ``sources`` (file names, in order)."""

    entries: tuple[Entry, ...]
    pins: Pins = field(default_factory=Pins)
    sources: tuple[str, ...] = ()
