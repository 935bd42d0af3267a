"""The launch plan: everything the host side of a launch does, as data.

A caller's arguments have names and types; each dispatch says which kernel of which code object runs
on which grid, and where every kernel argument lies in the kernarg segment.

As JSON, the caller's arguments are one line, ``x i64, n i32``, and a dispatch whose kernel takes them
as they are, in order and each at the next multiple of its size, does not list them again. So a plan has
one form: such a list is never written, and refused where it is read. Workspace is one line too,
``scratch 4096, epoch 3328`` in the caller's order, and left out when there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from mono_runtime.canonical import (
    Json,
    checked_count,
    checked_digest,
    checked_identifier,
    checked_symbol,
)
from mono_runtime.errors import InvalidValue
from mono_runtime.expressions import (
    Arg,
    Const,
    Expression,
    argument_names,
    expression_from_json,
    expression_to_json,
)

# Bytes of a kernarg segment: HIP's launches pass kilobytes at most, and a runtime allocates this much.
MAX_KERNARG = 65536
# Bytes of each argument type. Pointers are device addresses of 64 bits.
TYPE_BYTES = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "f32": 4, "f64": 8, "ptr": 8}
# Types that hold the address of memory: FlyDSL's launchers take addresses as 64-bit integers.
_ADDRESSES = ("i64", "ptr")
# Argument lists that are kept for plans to share: a store's families have few.
_KEPT = 64


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
class Workspace:
    """Memory of the kernels' own: the caller allocates ``size`` bytes, zeroes them once, keeps them, and
    passes their address as ``argument``."""

    argument: str
    size: int


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The caller's arguments, where the stream stands among them, and the dispatches in order.

    Attributes:
        stream: the stream parameter's name, or None when the launcher has none.
        persistent: whether all workgroups must be resident at once (they wait for each other).
        workspace: what the kernels need behind some of the arguments, in the arguments' order.
    """

    arguments: tuple[Argument, ...]
    stream: str | None
    persistent: bool
    dispatches: tuple[Dispatch, ...]
    workspace: tuple[Workspace, ...] = ()

    def check(self) -> None:
        """Raise `InvalidValue` for a plan that contradicts itself."""
        caller = _Caller.of(self.arguments)
        self._check(caller, [_Segment.of(d.arguments) for d in self.dispatches])

    def _check(self, caller: _Caller, segments: Sequence[_Segment]) -> None:
        if self.stream in caller.names:
            raise InvalidValue(f"the stream of a launch plan is its argument {self.stream!r} too")
        if not self.dispatches:
            raise InvalidValue("a launch plan without a dispatch")
        for dispatch, segment in zip(self.dispatches, segments, strict=True):
            _check_dispatch(dispatch, segment, caller.names)
        _check_workspace(self.workspace, self.arguments)

    def to_json(self) -> Json:
        natural = natural_layout(self.arguments)
        value = {
            "arguments": ", ".join(f"{a.name} {a.type}" for a in self.arguments),
            "stream": self.stream,
            "persistent": self.persistent,
            "dispatches": [_dispatch_to_json(d, natural) for d in self.dispatches],
        }
        if self.workspace:
            value["workspace"] = ", ".join(f"{w.argument} {w.size}" for w in self.workspace)
        return value

    @staticmethod
    def from_json(value: Json) -> LaunchPlan:
        """The plan that `to_json` wrote, checked; anything else raises `InvalidValue`.

        Plans of equal arguments share the same tuples of them.
        """
        try:
            caller = _caller_from_json(value["arguments"])
            segments = [_segment_from_json(d, caller) for d in value["dispatches"]]
            dispatches = map(_dispatch_from_json, value["dispatches"], segments)
            stream, persistent = value["stream"], value["persistent"]
            workspace = _workspace_from_json(value["workspace"]) if "workspace" in value else ()
            plan = LaunchPlan(caller.arguments, stream, persistent, tuple(dispatches), workspace)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidValue(f"not a launch plan: {error!r}") from error
        if stream is not None:
            checked_identifier(stream, "the stream of a launch plan")
        if not isinstance(persistent, bool):
            raise InvalidValue(f"persistent is {persistent!r}, not true or false")
        plan._check(caller, segments)
        return plan


def natural_layout(arguments: Sequence[Argument]) -> tuple[KernelArgument, ...]:
    """Kernel arguments that are the caller's, in order, each at the next multiple of its size."""
    layout, end = [], 0
    for argument in arguments:
        size = TYPE_BYTES[argument.type]
        offset = -(-end // size) * size
        layout.append(KernelArgument(argument.name, argument.type, offset, Arg(argument.name)))
        end = offset + size
    return tuple(layout)


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


@dataclass(frozen=True, slots=True)
class _Caller:
    """Checked arguments of a caller, their names, and the segment that is them as they are."""

    arguments: tuple[Argument, ...]
    names: frozenset[str]
    segment: _Segment

    @staticmethod
    def of(arguments: tuple[Argument, ...]) -> _Caller:
        names = frozenset(a.name for a in arguments)
        if len(names) != len(arguments):
            raise InvalidValue("two arguments of a launch plan share a name")
        for argument in arguments:
            _check_type(argument.type, argument.name)
        return _Caller(arguments, names, _Segment.of(natural_layout(arguments)))


def _caller_from_json(value: Json) -> _Caller:
    if type(value) is not str:
        raise InvalidValue("the arguments of a launch plan are no text")
    return _caller(value)


@lru_cache(maxsize=_KEPT)
def _caller(text: str) -> _Caller:
    arguments = []
    for pair in text.split(", ") if text else ():
        name, _, type_ = pair.partition(" ")
        arguments.append(Argument(checked_identifier(name, "an argument"), type_))
    return _Caller.of(tuple(arguments))


def _segment_from_json(dispatch: Json, caller: _Caller) -> _Segment:
    if "arguments" not in dispatch:
        return caller.segment
    listed = dispatch["arguments"]
    if type(listed) is not list:
        raise InvalidValue("the arguments of a dispatch are no list")
    segment = _Segment.of(
        tuple(
            [
                KernelArgument(
                    checked_identifier(a["name"], "a kernel argument"),
                    a["type"],
                    checked_count(a["offset"], "an offset", MAX_KERNARG),
                    expression_from_json(a["value"]),
                )
                for a in listed
            ]
        )
    )
    if segment == caller.segment:
        raise InvalidValue("a dispatch lists arguments that are the caller's as they are")
    return segment


def _workspace_from_json(text: Json) -> tuple[Workspace, ...]:
    if type(text) is not str or not text:
        raise InvalidValue(f"the workspace of a launch plan is {text!r}, not names with sizes")
    found = []
    for pair in text.split(", "):
        name, _, size = pair.partition(" ")
        # Decimal digits as they are written: one number has one form.
        if not size.isdecimal() or not size.isascii() or size.startswith("0"):
            raise InvalidValue(f"the workspace {pair!r} of a launch plan has no size in bytes")
        size_bytes = checked_count(int(size), f"the workspace of {name}")
        found.append(Workspace(checked_identifier(name, "an argument with workspace"), size_bytes))
    return tuple(found)


def _check_workspace(workspace: Sequence[Workspace], arguments: Sequence[Argument]) -> None:
    if not workspace:
        return
    places = {a.name: (i, a.type) for i, a in enumerate(arguments)}
    last = -1
    for item in workspace:
        place, type_ = places.get(item.argument, (-1, ""))
        if type_ not in _ADDRESSES:
            what = f"of type {type_}" if type_ else "not there"
            raise InvalidValue(f"the argument {item.argument!r} with workspace is {what}")
        if item.size <= 0:
            raise InvalidValue(f"the workspace of {item.argument} is {item.size} bytes")
        if place <= last:
            raise InvalidValue(f"the workspace of {item.argument} is out of the arguments' order")
        last = place


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


def _dispatch_to_json(dispatch: Dispatch, natural: tuple[KernelArgument, ...]) -> Json:
    value = {
        "symbol": dispatch.symbol,
        "code_object": dispatch.code_object,
        "grid": [expression_to_json(e) for e in dispatch.grid],
        "block": [expression_to_json(e) for e in dispatch.block],
        "dynamic_lds": expression_to_json(dispatch.dynamic_lds),
        "kernarg_size": dispatch.kernarg_size,
    }
    if dispatch.arguments != natural:
        value["arguments"] = [
            {
                "name": a.name,
                "type": a.type,
                "offset": a.offset,
                "value": expression_to_json(a.value),
            }
            for a in dispatch.arguments
        ]
    return value


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
    x, y, z = values
    return (expression_from_json(x), expression_from_json(y), expression_from_json(z))
