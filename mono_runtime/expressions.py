"""Integer expressions over a launch's arguments: grids, blocks and computed kernel arguments.

The operations are LLVM's integer ones and have its meaning: two's complement at the stated width,
division truncating towards zero.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mono_runtime.canonical import Json
from mono_runtime.errors import InvalidValue


@dataclass(frozen=True, slots=True)
class Const:
    """A literal integer."""

    value: int


@dataclass(frozen=True, slots=True)
class Arg:
    """The caller's argument of this name."""

    name: str


@dataclass(frozen=True, slots=True)
class Op:
    """One operation; ``width`` is the bit width of its operands (of its result, for casts)."""

    name: str
    width: int
    operands: tuple[Expression, ...]


Expression = Const | Arg | Op
# Far more than a grid or a kernel argument needs; evaluation and reading recurse this deep.
MAX_DEPTH = 64
# What fits in an argument, signed or not.
_LOWEST, _HIGHEST = -(1 << 63), (1 << 64) - 1


def _signed(value: int, width: int) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def _unsigned(value: int, width: int) -> int:
    return value & ((1 << width) - 1)


def _sdiv(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


_Binary = Callable[[int, int], int]
_SIGNED: dict[str, _Binary] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "sdiv": _sdiv,
    "srem": lambda a, b: a - b * _sdiv(a, b),
    "smax": max,
    "smin": min,
    "eq": lambda a, b: int(a == b),
    "ne": lambda a, b: int(a != b),
    "slt": lambda a, b: int(a < b),
    "sle": lambda a, b: int(a <= b),
    "sgt": lambda a, b: int(a > b),
    "sge": lambda a, b: int(a >= b),
    "ashr": lambda a, b: a >> b,
}
_UNSIGNED: dict[str, _Binary] = {
    "udiv": lambda a, b: a // b,
    "urem": lambda a, b: a % b,
    "umax": max,
    "umin": min,
    "ult": lambda a, b: int(a < b),
    "ule": lambda a, b: int(a <= b),
    "ugt": lambda a, b: int(a > b),
    "uge": lambda a, b: int(a >= b),
    "shl": lambda a, b: a << b,
    "lshr": lambda a, b: a >> b,
}
_CASTS = ("sext", "zext", "trunc")
OPERATIONS = frozenset([*_SIGNED, *_UNSIGNED, *_CASTS, "select"])


def evaluate(expression: Expression, arguments: Mapping[str, int]) -> int:
    """The value of ``expression``, signed at its width. Missing names and bad divisors raise `InvalidValue`."""
    if isinstance(expression, Const):
        return expression.value
    if isinstance(expression, Arg):
        if expression.name not in arguments:
            raise InvalidValue(f"no argument named {expression.name!r}")
        return arguments[expression.name]
    return _apply(expression, [evaluate(e, arguments) for e in expression.operands])


def _apply(op: Op, values: list[int]) -> int:
    if op.name == "select":
        return values[1] if values[0] else values[2]
    if op.name == "zext":
        # The operand's own width rides as a second, constant operand.
        return _unsigned(values[0], values[1])
    if op.name in ("sext", "trunc"):
        return _signed(values[0], op.width)
    left, right = values
    if op.name in ("sdiv", "srem", "udiv", "urem") and right == 0:
        raise InvalidValue(f"division by zero in {op.name}")
    if op.name in ("shl", "lshr", "ashr") and not 0 <= right < op.width:
        raise InvalidValue(f"shift by {right} in a {op.width}-bit {op.name}")
    if op.name in _SIGNED:
        result = _SIGNED[op.name](_signed(left, op.width), _signed(right, op.width))
    else:
        result = _UNSIGNED[op.name](_unsigned(left, op.width), _unsigned(right, op.width))
    return _signed(result, op.width) if op.width > 1 else result & 1


def argument_names(expression: Expression) -> frozenset[str]:
    """Every argument that ``expression`` reads."""
    if isinstance(expression, Arg):
        return frozenset([expression.name])
    if isinstance(expression, Op):
        return frozenset().union(*(argument_names(e) for e in expression.operands))
    return frozenset()


def expression_to_json(expression: Expression) -> Json:
    """An integer, ``{"arg": name}`` or ``{"op": name, "width": bits, "of": [...]}``."""
    if isinstance(expression, Const):
        return expression.value
    if isinstance(expression, Arg):
        return {"arg": expression.name}
    return {
        "op": expression.name,
        "width": expression.width,
        "of": [expression_to_json(e) for e in expression.operands],
    }


_ARITY = {"select": 3, "sext": 1, "trunc": 1}


def expression_from_json(value: Json, depth: int = 0) -> Expression:
    """What `expression_to_json` wrote; anything else, or more than `MAX_DEPTH` levels, raises `InvalidValue`."""
    if type(value) is int and _LOWEST <= value <= _HIGHEST:
        return Const(value)
    if isinstance(value, dict) and set(value) == {"arg"} and isinstance(value["arg"], str):
        return Arg(value["arg"])
    if isinstance(value, dict) and set(value) == {"op", "width", "of"} and depth < MAX_DEPTH:
        name, width, of = value["op"], value["width"], value["of"]
        if (
            isinstance(name, str)
            and name in OPERATIONS
            and _is_width(width)
            and isinstance(of, list)
            and len(of) == _ARITY.get(name, 2)
            and (name != "zext" or _is_width(of[1]))
        ):
            return Op(name, width, tuple(expression_from_json(v, depth + 1) for v in of))
    raise InvalidValue(f"not an integer expression: {reprlib.repr(value)}")


def _is_width(value: Json) -> bool:
    return type(value) is int and 1 <= value <= 64
