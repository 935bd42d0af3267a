"""Fields: the parameters of build keys and deployments, and what each may be."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mono_runtime.launch_key import Scalar

# A deployment setting: one value, or a list of integers such as graph capture sizes.
Setting = Scalar | tuple[int, ...]

WORDS = {int: "an integer", bool: "true or false", float: "a number", str: "text"}


@dataclass(frozen=True, slots=True)
class Field:
    """One parameter of a build key or of a deployment, with what it may be.

    Attributes:
        type: ``int``, ``bool``, ``float`` or ``str``.
        default: its value when left out; None makes it required (a list defaults to an empty one).
        choices: the legal values, when they can be listed.
        minimum, maximum: inclusive bounds of a number.
        multiple: a number that every value is a multiple of.
        many: a list of such values (deployments only).
    """

    name: str
    type: type
    doc: str
    default: Scalar | None = None
    choices: tuple[Scalar, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    multiple: int = 1
    many: bool = False


def problem_with(field: Field, value: object) -> str | None:
    """Why ``value`` (one element, for a list) is illegal for ``field``, or None."""
    wrong = type_problem(field, value)
    if wrong:
        return wrong
    if field.choices and value not in field.choices:
        return f"{field.name} {shown(value)} is not legal ({hint(value, field.choices)})"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _range_problem(field, value)
    return None


def type_problem(field: Field, value: object) -> str | None:
    """Why ``value`` is not of ``field``'s type, or None."""
    if _is_a(field.type, value):
        return None
    return f"{field.name} must be {WORDS[field.type]}, not {shown(value)}"


def _is_a(kind: type, value: object) -> bool:
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return False
    if kind is float:
        return isinstance(value, (int, float)) and math.isfinite(value)
    return isinstance(value, kind)


def _range_problem(field: Field, value: int | float) -> str | None:
    low, high = field.minimum, field.maximum
    if low is not None and value < low:
        return f"{field.name} {shown(value)} is too small (nearest: {shown(low)})"
    if high is not None and value > high:
        return f"{field.name} {shown(value)} is too large (nearest: {shown(high)})"
    if field.multiple > 1 and value % field.multiple:
        near = max(round(value / field.multiple), 1) * field.multiple
        return (
            f"{field.name} {shown(value)} is not a multiple of {field.multiple} (nearest: {near})"
        )
    return None


def coerced(field: Field, value: Scalar) -> Scalar:
    """A legal ``value`` in the one form that keys hold: whole numbers of a float field become floats."""
    return float(value) if field.type is float else value


def with_defaults(fields: Sequence[Field], values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """``values`` completed with the defaults of ``fields``."""
    filled = {f.name: f.default for f in fields if f.default is not None}
    given = {f.name: coerced(f, values[f.name]) for f in fields if f.name in values}
    return {**filled, **values, **given}


def complete_settings(fields: Sequence[Field], values: Mapping[str, Setting]) -> dict[str, Setting]:
    """Deployment ``values`` completed with defaults; lists become sorted tuples without repeats."""
    filled: dict[str, Setting] = {}
    for field in fields:
        value = values.get(field.name, field.default)
        if field.many:
            listed = value if isinstance(value, (tuple, list)) else ()
            filled[field.name] = tuple(sorted(set(listed)))
        elif value is not None:
            filled[field.name] = value if isinstance(value, tuple) else coerced(field, value)
    return filled


def shown(value: object) -> str:
    """``value`` as a manifest would spell it, cut to a readable length."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "nothing"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def hint(value: object, options: Iterable[Scalar]) -> str:
    """``did you mean 'x'?`` when one of ``options`` is near, else all of them."""
    legal = list(options)
    if not legal:
        return "there are none"
    if isinstance(value, str):
        # Costs milliseconds, which only a misspelt name is worth.
        import difflib

        names = [o for o in legal if isinstance(o, str)]
        close = difflib.get_close_matches(value.lower(), names, n=1, cutoff=0.6)
        if close:
            return f"did you mean {close[0]!r}?"
    numbers = [o for o in legal if isinstance(o, (int, float)) and not isinstance(o, bool)]
    if numbers and isinstance(value, (int, float)):
        return f"nearest: {shown(min(numbers, key=lambda o: abs(o - value)))}"
    return "known: " + ", ".join(o if isinstance(o, str) else shown(o) for o in legal)
