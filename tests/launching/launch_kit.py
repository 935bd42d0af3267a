"""Launch plans and a driver in Python that records what would reach a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from mono_runtime.driver import Driver, Grid, Submit
from mono_runtime.expressions import Arg, Const, Expression
from mono_runtime.launch_key import LaunchKey
from mono_runtime.launch_plan import TYPE_BYTES, Argument, Dispatch, KernelArgument, LaunchPlan
from mono_runtime.launching import Launch

KEY = LaunchKey.of("standin", "k2", "gfx950", {"tokens": 6})
DIGEST = "sha256:" + "0" * 64
NONE = Const(0)
WHOLE = (Const(256), Const(1), Const(1))
THREADS = (Const(512), Const(1), Const(1))
# A raw stream, as an address.
STREAM = 0x55AA0000


@dataclass(frozen=True)
class Submitted:
    """One kernel that reached the device."""

    function: int
    grid: Grid
    block: Grid
    dynamic_lds: int
    stream: int
    kernargs: bytes


class RecordingDriver:
    """Launches into a list. ``during`` runs while a submitted buffer has been read up to its half."""

    name = "recording"

    def __init__(self, devices: int = 1, current: int = 0) -> None:
        self.devices = devices
        self.current = current
        self.submitted: list[Submitted] = []
        self.prepared = 0
        self.failure: Exception | None = None
        self.during: Callable[[], object] = lambda: None

    def device_count(self) -> int:
        return self.devices

    def current_device(self) -> int:
        return self.current

    def prepare(
        self,
        device: int,
        function: int,
        grid: Grid,
        block: Grid,
        dynamic_lds: int,
        kernargs: bytearray,
    ) -> Submit:
        self.prepared += 1

        def submit(stream: int) -> None:
            if self.failure is not None:
                raise self.failure
            half = len(kernargs) // 2
            first = bytes(kernargs[:half])
            self.during()
            self.submitted.append(
                Submitted(function, grid, block, dynamic_lds, stream, first + kernargs[half:])
            )

        return submit

    @property
    def last(self) -> bytes:
        return self.submitted[-1].kernargs


def arguments(text: str) -> tuple[Argument, ...]:
    """``"x:i64 n:i32"`` as arguments."""
    pairs = [item.split(":") for item in text.split()]
    return tuple(Argument(name, type_) for name, type_ in pairs)


def fields(items: Sequence[tuple[str, str, Expression]]) -> tuple[tuple[KernelArgument, ...], int]:
    """Kernel arguments laid out one after the other, each aligned to its size, and the segment's bytes."""
    result, end = [], 0
    for name, type_, value in items:
        size = TYPE_BYTES[type_]
        offset = (end + size - 1) // size * size
        result.append(KernelArgument(name, type_, offset, value))
        end = offset + size
    return tuple(result), (end + 7) // 8 * 8


def dispatch(
    items: Sequence[tuple[str, str, Expression]],
    *,
    symbol: str = "kernel",
    grid: tuple[Expression, Expression, Expression] = WHOLE,
    block: tuple[Expression, Expression, Expression] = THREADS,
    dynamic_lds: Expression = NONE,
) -> Dispatch:
    laid_out, size = fields(items)
    return Dispatch(symbol, DIGEST, grid, block, dynamic_lds, size, laid_out)


def plan(text: str, *dispatches: Dispatch, stream: str | None = "stream") -> LaunchPlan:
    """A plan of these arguments; without dispatches, one that takes them all as they are."""
    taken = arguments(text)
    if not dispatches:
        dispatches = (dispatch([(a.name, a.type, Arg(a.name)) for a in taken]),)
    result = LaunchPlan(taken, stream, True, dispatches)
    result.check()
    return result


def launch(
    of: LaunchPlan | str, driver: RecordingDriver, *, device: int = 0, **options: Any
) -> Launch:
    """A launch whose functions are 1, 2 ... in order of dispatches."""
    held = plan(of) if isinstance(of, str) else of
    functions = range(1, 1 + len(held.dispatches))
    return Launch(KEY, held, device, cast(Driver, driver), list(functions), **options)


class Pointer:
    """What a tensor is to a launch."""

    def __init__(self, address: int) -> None:
        self.address = address

    def data_ptr(self) -> int:
        return self.address


class OneElement(Pointer):
    """A tensor of one element: Python may take it for the number in it."""

    def __index__(self) -> int:
        return 7

    def __float__(self) -> float:
        return 7.0
