"""The launch key: family, launch, target and build key, in the one form that names a build."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from mono_runtime.arch import checked_arch
from mono_runtime.canonical import Json, digest_json
from mono_runtime.errors import InvalidValue

Scalar = bool | int | float | str
_RANGE = 1 << 63
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")


def checked_name(text: object, what: str) -> str:
    """``text`` if it is a plain lower-case identifier (names meet file systems and shells)."""
    if not isinstance(text, str) or not _NAME.match(text):
        raise InvalidValue(f"not a valid {what} name: {text!r}", fix="use [a-z][a-z0-9_]*")
    return text


@dataclass(frozen=True, slots=True, order=False)
class LaunchKey:
    """One build of one launch.

    Attributes:
        family: the model's launches, e.g. ``deepseek_v41``.
        launch: one host function of it, e.g. ``k1``.
        arch: base architecture name, e.g. ``gfx950``.
        build: the build key's (name, value) pairs, sorted by name.
    """

    family: str
    launch: str
    arch: str
    build: tuple[tuple[str, Scalar], ...]

    @staticmethod
    def of(family: str, launch: str, arch: str, build: Mapping[str, Scalar]) -> LaunchKey:
        """A checked key; names and value types are validated, `InvalidValue` says which is wrong."""
        checked_name(family, "family")
        checked_name(launch, "launch")
        checked_arch(arch)
        names = _field_names(tuple(build))
        for name in names:
            _check_scalar(name, build[name])
        return LaunchKey(family, launch, arch, tuple([(name, build[name]) for name in names]))

    @property
    def values(self) -> dict[str, Scalar]:
        """The build key as a dictionary."""
        return dict(self.build)

    @property
    def digest(self) -> str:
        """``sha256:...`` of the canonical JSON form: the name of this build."""
        return digest_json(self.to_json())

    @property
    def sort_key(self) -> tuple[object, ...]:
        """Family, architecture, launch, then the build key with numbers in numeric order."""
        build = tuple([(n, isinstance(v, str), v) for n, v in self.build])
        return (self.family, self.arch, self.launch, build)

    def to_json(self) -> Json:
        return {
            "family": self.family,
            "launch": self.launch,
            "arch": self.arch,
            "build": dict(self.build),
        }

    @staticmethod
    def from_json(value: Json) -> LaunchKey:
        """The key that `to_json` wrote; anything else raises `InvalidValue`."""
        if not isinstance(value, dict) or set(value) != {"family", "launch", "arch", "build"}:
            raise InvalidValue(f"not a launch key: {value!r}")
        if not isinstance(value["build"], dict):
            raise InvalidValue(f"not a build key: {value['build']!r}")
        return LaunchKey.of(value["family"], value["launch"], value["arch"], value["build"])

    def __str__(self) -> str:
        build = " ".join(f"{n}={_text(v)}" for n, v in self.build)
        return f"{self.family}/{self.launch} {self.arch} {build}"


# A family's launches have few sets of fields, and a server asks for many keys.
@lru_cache(maxsize=256)
def _field_names(names: tuple[object, ...]) -> tuple[str, ...]:
    return tuple(sorted(checked_name(name, "build parameter") for name in names))


def _check_scalar(name: str, value: object) -> None:
    if isinstance(value, (bool, str)):
        return
    if isinstance(value, int):
        if not -_RANGE <= value < _RANGE:
            raise InvalidValue(f"build parameter {name} does not fit in 64 bits")
    elif not isinstance(value, float):
        raise InvalidValue(f"build parameter {name} = {value!r} is not a scalar")
    elif not math.isfinite(value):
        raise InvalidValue(f"build parameter {name} = {value!r} is not finite")


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
