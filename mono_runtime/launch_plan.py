"""The launch plan: everything the host side of a launch does, as data.

A caller's arguments have names and types; each dispatch says which kernel of which code object runs
on which grid, and where every kernel argument lies in the kernarg segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mono_runtime.canonical import (
    Json,
    checked_count,
    checked_digest,
    checked_identifier,
    checked_symbol,
)
from mono_runtime.errors import InvalidValue
from mono_runtime.expressions import (
    Const,
    Expression,
    argument_names,
    expression_from_json,
    expression_to_json,
)
from mono_runtime.fragments import OnceEach

# Bytes of a kernarg segment: HIP's launches pass kilobytes at most, and a runtime allocates this much.
MAX_KERNARG = 65536
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
        names = _names(self.arguments)
        self._check(names, [_Segment.of(d.arguments) for d in self.dispatches])

    def _check(self, names: frozenset[str], segments: Sequence[_Segment]) -> None:
        if self.stream in names:
            raise InvalidValue(f"the stream of a launch plan is its argument {self.stream!r} too")
        if not self.dispatches:
            raise InvalidValue("a launch plan without a dispatch")
        for dispatch, segment in zip(self.dispatches, segments, strict=True):
            _check_dispatch(dispatch, segment, names)

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
            arguments, names = _caller(value["arguments"])
            segments = [_segment(d["arguments"]) for d in value["dispatches"]]
            dispatches = map(_dispatch_from_json, value["dispatches"], segments)
            stream, persistent = value["stream"], value["persistent"]
            plan = LaunchPlan(arguments, stream, persistent, tuple(dispatches))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidValue(f"not a launch plan: {error!r}") from error
        if stream is not None:
            checked_identifier(stream, "the stream of a launch plan")
        if not isinstance(persistent, bool):
            raise InvalidValue(f"persistent is {persistent!r}, not true or false")
        plan._check(names, segments)
        return plan


@dataclass(frozen=True, slots=True)
class _Segment:
    """Checked kernel arguments, what they read of the caller's, and where they end in bytes."""

    arguments: tuple[KernelArgument, ...]
    reads: frozenset[str]
    end: int

    @staticmethod
    def of(arguments: tuple[KernelArgument, ...]) -> _Segment:
        end = 0
        for argument in sorted(arguments, key=lambda a: a.offset):
            _check_type(argument.type, argument.name)
            if argument.offset < end or argument.offset % argument.size:
                raise InvalidValue(f"kernel argument {argument.name} overlaps or is unaligned")
            end = argument.offset + argument.size
        reads = frozenset().union(*(argument_names(a.value) for a in arguments))
        return _Segment(arguments, reads, end)

    @staticmethod
    def from_json(value: Json) -> _Segment:
        return _Segment.of(
            tuple(
                KernelArgument(
                    checked_identifier(a["name"], "a kernel argument"),
                    a["type"],
                    checked_count(a["offset"], "an offset", MAX_KERNARG),
                    expression_from_json(a["value"]),
                )
                for a in value
            )
        )


def _caller_from_json(value: Json) -> tuple[tuple[Argument, ...], frozenset[str]]:
    arguments = tuple(
        Argument(checked_identifier(a["name"], "an argument"), a["type"]) for a in value
    )
    return arguments, _names(arguments)


_caller = OnceEach(_caller_from_json)
_segment = OnceEach(_Segment.from_json)


def _names(arguments: Sequence[Argument]) -> frozenset[str]:
    names = frozenset(a.name for a in arguments)
    if len(names) != len(arguments):
        raise InvalidValue("two arguments of a launch plan share a name")
    for argument in arguments:
        _check_type(argument.type, argument.name)
    return names


def _check_type(name: object, what: str) -> None:
    if not isinstance(name, str) or name not in TYPE_BYTES:
        raise InvalidValue(f"{what} has the unknown type {name!r}")


def _check_dispatch(dispatch: Dispatch, segment: _Segment, names: frozenset[str]) -> None:
    shape = (*dispatch.grid, *dispatch.block, dispatch.dynamic_lds)
    for read in (segment.reads, *[argument_names(e) for e in shape if not isinstance(e, Const)]):
        if not read <= names:
            unknown = sorted(read - names)
            raise InvalidValue(f"{dispatch.symbol} reads unknown arguments {unknown}")
    if segment.end > dispatch.kernarg_size:
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


def _dispatch_from_json(value: Json, segment: _Segment) -> Dispatch:
    return Dispatch(
        symbol=checked_symbol(value["symbol"], "a kernel"),
        code_object=checked_digest(value["code_object"], "launch plan"),
        grid=_triple(value["grid"]),
        block=_triple(value["block"]),
        dynamic_lds=expression_from_json(value["dynamic_lds"]),
        kernarg_size=checked_count(value["kernarg_size"], "the kernarg size", MAX_KERNARG),
        arguments=segment.arguments,
    )


def _triple(values: Json) -> tuple[Expression, Expression, Expression]:
    if not isinstance(values, list) or len(values) != 3:
        raise InvalidValue(f"not three dimensions: {values!r}")
    x, y, z = (expression_from_json(v) for v in values)
    return (x, y, z)
