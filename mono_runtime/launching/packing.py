"""From a dispatch of a launch plan to the bytes of its kernarg segment and its grid."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from mono_runtime.driver import Grid
from mono_runtime.errors import ArgumentMismatch, InvalidValue
from mono_runtime.expressions import Arg, Const, Expression, evaluate
from mono_runtime.launch_plan import Argument, Dispatch, KernelArgument
from mono_runtime.launching.values import Value, normalised

# Formats of the host's own layout: HIP's hosts are 64-bit and little-endian, as its devices are. "n" is
# an address-sized integer, which CPython converts at twice the speed of "q". Offsets are multiples of the
# sizes (`LaunchPlan.check`), which is how the host aligns too.
FORMATS = {"i8": "b", "i16": "h", "i32": "i", "i64": "n", "ptr": "n", "f32": "f", "f64": "d"}
# Writes ``(buffer, 0, *numbers)``, the numbers in calling order.
Pack = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Geometry:
    """What a dispatch runs on: workgroups, work-items of each, and bytes of dynamic LDS."""

    grid: Grid
    block: Grid
    dynamic_lds: int


@dataclass(frozen=True, slots=True)
class Packing:
    """How one dispatch is filled.

    Attributes:
        dispatch: what is filled.
        fields: its kernel arguments by offset.
        where: the launch, for messages.
        geometry: the grid, when it does not depend on arguments.
        sources: for each field, the caller's argument that it is a copy of; None
            when at least one is computed.
        pack: packs a call's numbers at once when ``sources`` is there; it raises `struct.error` or
            `TypeError` for what does not fit (integers have to be signed).
    """

    dispatch: Dispatch
    fields: tuple[KernelArgument, ...]
    where: str
    geometry: Geometry | None
    sources: tuple[int, ...] | None
    pack: Pack | None

    def fill(self, buffer: bytearray, numbers: Mapping[str, Value]) -> None:
        """Evaluate every kernel argument over the caller's normalised ``numbers`` and write it."""
        for argument in self.fields:
            name = f"{self.dispatch.symbol}({argument.name})"
            value = self._evaluated(argument.value, numbers)
            value = normalised(Argument(name, argument.type), value, self.where)
            struct.pack_into(FORMATS[argument.type], buffer, argument.offset, value)

    def geometry_of(self, numbers: Mapping[str, Value]) -> Geometry:
        """The grid for the caller's normalised ``numbers``; `ArgumentMismatch` if it is none."""
        if self.geometry is not None:
            return self.geometry
        dispatch = self.dispatch
        grid, block = (
            [self._evaluated(e, numbers) for e in d] for d in (dispatch.grid, dispatch.block)
        )
        lds = self._evaluated(dispatch.dynamic_lds, numbers)
        try:
            return _geometry(dispatch.symbol, grid, block, lds)
        except InvalidValue as error:
            raise ArgumentMismatch(
                error.what, where=self.where, fix="pass arguments that give a grid of this size"
            ) from error

    def _evaluated(self, expression: Expression, numbers: Mapping[str, Value]) -> Value:
        if isinstance(expression, Arg):
            return numbers[expression.name]
        try:
            return evaluate(expression, numbers)  # type: ignore[arg-type]
        except InvalidValue as error:
            raise ArgumentMismatch(
                f"{self.dispatch.symbol} cannot be launched with these arguments: {error.what}",
                where=self.where,
                fix="pass arguments for which the launch's grid and kernel arguments are defined",
            ) from error


def packing(dispatch: Dispatch, arguments: tuple[Argument, ...], where: str) -> Packing:
    """How ``dispatch`` is filled from a call of ``arguments``; a constant grid is checked here."""
    fields = tuple(sorted(dispatch.arguments, key=lambda a: a.offset))
    sources = _sources(fields, arguments)
    return Packing(
        dispatch=dispatch,
        fields=fields,
        where=where,
        geometry=_constant_geometry(dispatch),
        sources=sources,
        pack=None if sources is None else _packer(fields, sources, len(arguments)),
    )


def _sources(
    fields: tuple[KernelArgument, ...], arguments: tuple[Argument, ...]
) -> tuple[int, ...] | None:
    positions = {a.name: i for i, a in enumerate(arguments)}
    sources = []
    for field in fields:
        if not isinstance(field.value, Arg):
            return None
        position = positions[field.value.name]
        if FORMATS[arguments[position].type] != FORMATS[field.type]:
            return None
        sources.append(position)
    return tuple(sources)


def _packer(fields: tuple[KernelArgument, ...], sources: tuple[int, ...], count: int) -> Pack:
    pack: Pack = struct.Struct(_format(fields)).pack_into
    if sources == tuple(range(count)):
        return pack
    if len(sources) < 2:
        # itemgetter gives a lone item without a tuple around it.
        return lambda buffer, offset, *numbers: pack(buffer, offset, *(numbers[s] for s in sources))
    pick: Callable[[Sequence[Value]], Sequence[Value]] = itemgetter(*sources)
    return lambda buffer, offset, *numbers: pack(buffer, offset, *pick(numbers))


def _format(fields: tuple[KernelArgument, ...]) -> str:
    # The host's own "f" makes infinity of what is too large; the standard one raises.
    standard = any(field.type == "f32" for field in fields)
    codes, end = [], 0
    for field in fields:
        # The host's layout aligns by itself, which is faster than bytes that are spelt out.
        start = end if standard else -(-end // field.size) * field.size
        codes += ["x"] * (field.offset - start)
        code = FORMATS[field.type]
        codes.append("q" if standard and code == "n" else code)
        end = field.offset + field.size
    runs = [(code, len(list(run))) for code, run in groupby(codes)]
    return ("<" if standard else "@") + "".join(f"{length}{code}" for code, length in runs)


def _constant_geometry(dispatch: Dispatch) -> Geometry | None:
    values = []
    for expression in (*dispatch.grid, *dispatch.block, dispatch.dynamic_lds):
        if not isinstance(expression, Const):
            return None
        values.append(expression.value)
    return _geometry(dispatch.symbol, values[:3], values[3:6], values[6])


def _geometry(
    symbol: str, grid: Sequence[Value], block: Sequence[Value], dynamic_lds: Value
) -> Geometry:
    for what, sizes in (("grid", grid), ("block", block)):
        if not all(isinstance(n, int) and 1 <= n < 1 << 32 for n in sizes):
            raise InvalidValue(f"{symbol} would run on a {what} of {tuple(sizes)}")
    if not isinstance(dynamic_lds, int) or not 0 <= dynamic_lds < 1 << 32:
        raise InvalidValue(f"{symbol} would run with {dynamic_lds} bytes of dynamic LDS")
    return Geometry(_grid(grid), _grid(block), dynamic_lds)


def _grid(sizes: Sequence[Value]) -> Grid:
    x, y, z = (int(n) for n in sizes)
    return (x, y, z)
