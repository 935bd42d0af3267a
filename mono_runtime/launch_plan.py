"""The launch plan: everything the host side of a launch does, as data.

A caller's arguments have names and types; each dispatch says which kernel of which code object runs
on which grid, and where every kernel argument lies in the kernarg segment.
"""

from __future__ import annotations

from dataclasses import dataclass

from mono_runtime.canonical import Json, checked_digest
from mono_runtime.errors import InvalidValue
from mono_runtime.expressions import (
    Expression,
    argument_names,
    expression_from_json,
    expression_to_json,
)

# Bytes of each argument type. Pointers are device addresses of 64 bits.
TYPE_BYTES = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "f32": 4, "f64": 8, "ptr": 8}


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of the caller, in calling order (the stream is not one of them)."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class KernelArgument:
    """One value in the kernarg segment: ``offset`` and the type's size are in bytes."""

    name: str
    type: str
    offset: int
    value: Expression

    @property
    def size(self) -> int:
        """Bytes it takes."""
        return TYPE_BYTES[self.type]


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One kernel launch.

    Attributes:
        symbol: the kernel's name in the code object.
        code_object: digest of the ELF that holds it.
        grid: workgroups in x, y, z.
        block: work-items of a workgroup in x, y, z.
        dynamic_lds: bytes of LDS beyond the kernel's static ones.
        kernarg_size: bytes of the kernarg segment, as the ELF notes state it.
        arguments: what is written into the segment.
    """

    symbol: str
    code_object: str
    grid: tuple[Expression, Expression, Expression]
    block: tuple[Expression, Expression, Expression]
    dynamic_lds: Expression
    kernarg_size: int
    arguments: tuple[KernelArgument, ...]


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The caller's arguments, where the stream stands among them, and the dispatches in order.

    Attributes:
        stream: the stream parameter's name, or None when the launcher has none.
        persistent: whether all workgroups must be resident at once (they wait for each other).
    """

    arguments: tuple[Argument, ...]
    stream: str | None
    persistent: bool
    dispatches: tuple[Dispatch, ...]

    def check(self) -> None:
        """Raise `InvalidValue` for a plan that contradicts itself."""
        names = [a.name for a in self.arguments]
        if len(set(names)) != len(names):
            raise InvalidValue("two arguments of a launch plan share a name")
        for argument in self.arguments:
            _check_type(argument.type, argument.name)
        if not self.dispatches:
            raise InvalidValue("a launch plan without a dispatch")
        for dispatch in self.dispatches:
            _check_dispatch(dispatch, frozenset(names))

    def to_json(self) -> Json:
        return {
            "arguments": [{"name": a.name, "type": a.type} for a in self.arguments],
            "stream": self.stream,
            "persistent": self.persistent,
            "dispatches": [_dispatch_to_json(d) for d in self.dispatches],
        }

    @staticmethod
    def from_json(value: Json) -> LaunchPlan:
        """The plan that `to_json` wrote, checked; anything else raises `InvalidValue`."""
        try:
            plan = LaunchPlan(
                tuple(Argument(a["name"], a["type"]) for a in value["arguments"]),
                value["stream"],
                bool(value["persistent"]),
                tuple(_dispatch_from_json(d) for d in value["dispatches"]),
            )
        except (KeyError, TypeError) as error:
            raise InvalidValue(f"not a launch plan: {error!r}") from error
        plan.check()
        return plan


def _check_type(name: str, what: str) -> None:
    if name not in TYPE_BYTES:
        raise InvalidValue(f"{what} has the unknown type {name!r}")


def _check_dispatch(dispatch: Dispatch, names: frozenset[str]) -> None:
    expressions = [*dispatch.grid, *dispatch.block, dispatch.dynamic_lds]
    expressions += [a.value for a in dispatch.arguments]
    unknown = frozenset().union(*map(argument_names, expressions)) - names
    if unknown:
        raise InvalidValue(f"{dispatch.symbol} reads unknown arguments {sorted(unknown)}")
    end = 0
    for argument in sorted(dispatch.arguments, key=lambda a: a.offset):
        _check_type(argument.type, f"{dispatch.symbol}({argument.name})")
        if argument.offset < end or argument.offset % argument.size:
            raise InvalidValue(f"{dispatch.symbol}({argument.name}) overlaps or is unaligned")
        end = argument.offset + argument.size
    if end > dispatch.kernarg_size:
        raise InvalidValue(f"{dispatch.symbol}'s arguments end past its kernarg segment")


def _dispatch_to_json(dispatch: Dispatch) -> Json:
    return {
        "symbol": dispatch.symbol,
        "code_object": dispatch.code_object,
        "grid": [expression_to_json(e) for e in dispatch.grid],
        "block": [expression_to_json(e) for e in dispatch.block],
        "dynamic_lds": expression_to_json(dispatch.dynamic_lds),
        "kernarg_size": dispatch.kernarg_size,
        "arguments": [
            {
                "name": a.name,
                "type": a.type,
                "offset": a.offset,
                "value": expression_to_json(a.value),
            }
            for a in dispatch.arguments
        ],
    }


def _dispatch_from_json(value: Json) -> Dispatch:
    return Dispatch(
        symbol=str(value["symbol"]),
        code_object=checked_digest(value["code_object"], "launch plan"),
        grid=_triple(value["grid"]),
        block=_triple(value["block"]),
        dynamic_lds=expression_from_json(value["dynamic_lds"]),
        kernarg_size=int(value["kernarg_size"]),
        arguments=tuple(
            KernelArgument(a["name"], a["type"], int(a["offset"]), expression_from_json(a["value"]))
            for a in value["arguments"]
        ),
    )


def _triple(values: Json) -> tuple[Expression, Expression, Expression]:
    if len(values) != 3:
        raise InvalidValue(f"not three dimensions: {values!r}")
    x, y, z = (expression_from_json(v) for v in values)
    return (x, y, z)
