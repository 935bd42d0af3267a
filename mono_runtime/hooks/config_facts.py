"""Facts of vLLM's configuration by dotted path: of the objects of a server, or of their JSON description."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import TypeVar

from mono_runtime.errors import InvalidValue
from mono_runtime.families.widths import FULL_AND_PIECEWISE, FULL_DECODE_ONLY, NONE, PIECEWISE

T = TypeVar("T")
Plain = bool | int | float | str | None | list["Plain"] | dict[str, "Plain"]
FULL = "FULL"
# vLLM's ``CUDAGraphMode`` (config/compilation.py) by value: what decode steps, and what others, run as.
_MODES: Mapping[object, str] = {
    0: NONE,
    1: PIECEWISE,
    2: FULL,
    (2, 0): FULL_DECODE_ONLY,
    (2, 1): FULL_AND_PIECEWISE,
}


class EngineConfigError(InvalidValue):
    """A fact of vLLM's configuration is missing, or is not what it has to be; ``where`` is its path."""


def wrong(path: str, expected: str, value: object) -> EngineConfigError:
    """The error of a fact that is ``value`` and has to be ``expected``."""
    shown = repr(value)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return EngineConfigError(
        f"{path} must be {expected}, not {shown}",
        where=path,
        fix="correct it, or take the file that a server writes (MONO_CONFIG_FILE)",
    )


def find(root: object, path: str) -> object:
    """What is at a dotted path, by key in mappings and by attribute elsewhere; None where there is nothing.

    Raises:
        EngineConfigError: a value stands where the path goes on, as in ``"kernel_config": true``.
    """
    value, names = root, path.split(".")
    for depth, name in enumerate(names):
        if isinstance(value, (str, bytes, int, float, list, tuple)):
            raise wrong(".".join(names[:depth]), "names with their values", value)
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
        if value is None:
            return None
    return value


def integer(path: str, value: object) -> int:
    """``value`` as an integer."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(path, "an integer", value)
    return int(value)


def flag(path: str, value: object) -> bool:
    """``value`` as true or false."""
    if not isinstance(value, bool):
        raise wrong(path, "true or false", value)
    return value


def number(path: str, value: object) -> float:
    """``value`` as a finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise wrong(path, "a number", value)
    return float(value)


def text(path: str, value: object) -> str:
    """``value`` as text; a member of an enumeration counts as its value."""
    value = value.value if isinstance(value, Enum) else value
    if not isinstance(value, str):
        raise wrong(path, "text", value)
    return str(value)


def integers(path: str, value: object) -> tuple[int, ...]:
    """``value`` as a list of integers."""
    return _listed(path, value, integer, "a list of integers")


def texts(path: str, value: object) -> tuple[str, ...]:
    """``value`` as a list of texts."""
    return _listed(path, value, text, "a list of texts")


def counts(path: str, value: object) -> dict[str, int]:
    """``value`` as integers by name."""
    if not isinstance(value, Mapping):
        raise wrong(path, "integers by name", value)
    return {text(path, n): integer(f"{path}.{n}", v) for n, v in value.items()}


def present(path: str, value: object) -> bool:
    """Whether there is anything but false; a list or a mapping counts, whatever is in it."""
    return value is not None and value is not False


def graph_mode(path: str, value: object) -> str:
    """``value`` as the name of a graph mode: a member of vLLM's enumeration, its name, or its value."""
    if isinstance(value, Enum):
        return graph_mode(path, value.name)
    if isinstance(value, str):
        name = value.rpartition(".")[2].upper()
        if name in _MODES.values():
            return name
    key = tuple(value) if isinstance(value, (list, tuple)) else value
    known = [m for v, m in _MODES.items() if v == key and not isinstance(key, bool)]
    if not known:
        raise wrong(path, f"a graph mode ({', '.join(_MODES.values())})", value)
    return known[0]


def plain(value: object) -> Plain:
    """``value`` of one of the types above as JSON has it."""
    if isinstance(value, tuple):
        return [plain(v) for v in value]
    if isinstance(value, Mapping):
        return {str(n): plain(v) for n, v in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"no plain value: {value!r}")


def put(root: dict[str, Plain], path: str, value: Plain) -> None:
    """Store ``value`` at a dotted path, making the mappings on the way."""
    *above, name = path.split(".")
    at = root
    for part in above:
        inner = at.setdefault(part, {})
        if not isinstance(inner, dict):
            raise TypeError(f"{path}: {part} is no mapping")
        at = inner
    at[name] = value


def _listed(
    path: str, value: object, each: Callable[[str, object], T], expected: str
) -> tuple[T, ...]:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise wrong(path, expected, value)
    return tuple(each(f"{path}[{i}]", v) for i, v in enumerate(value))
