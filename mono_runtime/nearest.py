"""What a store has instead of a launch that it lacks: the nearest entries, and the fields that differ."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from mono_runtime.launch_key import LaunchKey, Scalar

# As many entries as are worth reading.
_LISTED = 3

EMPTY = "empty"
FAMILY = "family"
LAUNCH = "launch"
ARCH = "arch"
BUILD = "build"
FIELDS = "fields"

_ANOTHER_BUILD = (
    "build a store for what this server asks for (mono-build plan lists it), or start the server with"
    " what was built"
)
_FIXES = {
    EMPTY: "open the store that was built for this server",
    FAMILY: "build a store with this family, or open the one that has it",
    LAUNCH: "build the store with the release whose launches the server asks for",
    ARCH: "build a store for this architecture (--arch), or open the one that was",
    BUILD: "build the store with the release whose build keys the server asks for",
    FIELDS: _ANOTHER_BUILD,
}


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """A field (``arch`` or one of the build key) with both values; None where a side has no such field."""

    name: str
    wanted: Scalar | None
    stored: Scalar | None

    def __str__(self) -> str:
        if self.stored is None:
            return f"no {self.name}, which is {_text(self.wanted)} here"
        if self.wanted is None:
            return f"{self.name} is {_text(self.stored)}, which was not given"
        return f"{self.name} is {_text(self.stored)}, not {_text(self.wanted)}"


@dataclass(frozen=True, slots=True)
class Nearest:
    """An entry of the store, and where it differs from the key that was asked for."""

    key: LaunchKey
    differences: tuple[FieldDifference, ...]

    def __str__(self) -> str:
        return "; ".join(map(str, self.differences))


@dataclass(frozen=True, slots=True)
class Miss:
    """Why a key is not in a store.

    Attributes:
        key: what was asked for.
        reason: ``empty`` (the store has no launch at all), ``family`` or ``launch`` (it knows none of this
            name), ``arch`` (it has the launch for other architectures alone), ``build`` (its keys
            have other fields) or ``fields`` (its keys have other values).
        nearest: entries of the same launch, fewest differences first; empty for the first three.
        known: what the store has in the place of the family, the launch or the architecture.
    """

    key: LaunchKey
    reason: str
    nearest: tuple[Nearest, ...] = ()
    known: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """The miss in words: the key, why, and a line for each of the nearest entries."""
        lines = [f"the store does not have {self.key}", *self._why()]
        lines += [f"  nearest: {entry}" for entry in self.nearest]
        return "\n".join(lines)

    @property
    def fix(self) -> str:
        """What to do about it."""
        return _FIXES[self.reason]

    def _why(self) -> list[str]:
        known = ", ".join(self.known)
        if self.reason == EMPTY:
            return ["  it has no launches at all"]
        if self.reason == FAMILY:
            return [f"  it has no family {self.key.family}; it has {known}"]
        if self.reason == LAUNCH:
            return [f"  its {self.key.family} has no launch {self.key.launch}; it has {known}"]
        if self.reason == ARCH:
            return [f"  it has this launch for {known} alone"]
        return []


def explain(key: LaunchKey, stored: Iterable[LaunchKey]) -> Miss:
    """Why ``key`` is none of ``stored``."""
    keys = list(stored)
    if not keys:
        return Miss(key, EMPTY)
    family = [k for k in keys if k.family == key.family]
    if not family:
        return Miss(key, FAMILY, known=_sorted(k.family for k in keys))
    launch = [k for k in family if k.launch == key.launch]
    if not launch:
        return Miss(key, LAUNCH, known=_sorted(k.launch for k in family))
    arch = [k for k in launch if k.arch == key.arch]
    if not arch:
        return Miss(key, ARCH, _nearest(key, launch), _sorted(k.arch for k in launch))
    fields = key.values.keys()
    reason = FIELDS if any(k.values.keys() == fields for k in arch) else BUILD
    return Miss(key, reason, _nearest(key, arch))


def _nearest(key: LaunchKey, stored: Iterable[LaunchKey]) -> tuple[Nearest, ...]:
    entries = [Nearest(other, _differences(key, other)) for other in stored]
    entries.sort(key=lambda e: (len(e.differences), _distance(e.differences), e.key.sort_key))
    return tuple(entries[:_LISTED])


def _differences(wanted: LaunchKey, stored: LaunchKey) -> tuple[FieldDifference, ...]:
    left, right = wanted.values, stored.values
    found = [FieldDifference("arch", wanted.arch, stored.arch)]
    found += [
        FieldDifference(n, left.get(n), right.get(n)) for n in sorted(left.keys() | right.keys())
    ]
    return tuple(d for d in found if d.wanted != d.stored)


def _distance(differences: Iterable[FieldDifference]) -> float:
    """How far numbers are apart in all; a field that is no number counts as one."""
    return sum(_apart(d.wanted, d.stored) for d in differences)


def _apart(wanted: Scalar | None, stored: Scalar | None) -> float:
    if isinstance(wanted, (bool, str, type(None))) or isinstance(stored, (bool, str, type(None))):
        return 1.0
    return abs(wanted - stored)


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))


def _text(value: Scalar | None) -> str:
    return json.dumps(value, ensure_ascii=False)
