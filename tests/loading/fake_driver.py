"""A driver in memory: several devices, failures on demand, and a record of what was asked of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from itertools import count

from mono_runtime.arch import parse_architecture
from mono_runtime.driver import Device, Grid, Submit
from mono_runtime.errors import DeviceMissing, DriverError


def device(
    name: str = "AMD Instinct MI355X",
    arch: str = "gfx950:sramecc+:xnack-",
    compute_units: int = 256,
    *,
    ordinal: int = 0,
    partition: str | None = None,
    restriction: str | None = None,
) -> Device:
    """A device, by default a whole MI355X."""
    target = parse_architecture(arch)
    return Device(
        ordinal,
        name,
        target,
        compute_units,
        memory=1 << 30,
        bus_id=f"0000:{ordinal:02x}:00.0",
        partition=partition,
        restriction=restriction,
    )


@dataclass(frozen=True)
class Launched:
    """One launch as the device got it."""

    device: int
    symbol: str
    grid: Grid
    block: Grid
    dynamic_lds: int
    kernargs: bytes
    stream: int


@dataclass
class FakeDriver:
    """`mono_runtime.driver.Driver` in memory.

    Attributes:
        devices: those that this process sees.
        occupancy: what it answers for workgroups a compute unit; None: it cannot tell.
        before: by method name, called with the method's arguments first; may wait, and may raise.
        calls: (method, arguments) in the order in which they succeeded.
        launches: what reached a device.
        capturing: streams that record a graph.
    """

    devices: tuple[Device, ...] = field(default_factory=lambda: (device(),))
    occupancy: int | None = None
    before: dict[str, Callable[..., None]] = field(default_factory=dict)
    calls: list[tuple[str, tuple[object, ...]]] = field(default_factory=list)
    launches: list[Launched] = field(default_factory=list)
    capturing: set[int] = field(default_factory=set)
    modules: dict[int, bytes] = field(default_factory=dict)
    current: int = 0
    name: str = "fake driver"

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = count(0x1000, 0x1000)
        self._functions: dict[int, str] = {}
        self._memory: dict[int, bytearray] = {}
        self._objects: set[int] = set()
        self._times: dict[int, float] = {}

    def fail(self, method: str, error: BaseException, times: int | None = None) -> None:
        """Let the next ``times`` calls of ``method``, or all, raise ``error``."""
        left = count() if times is None else iter(range(times))

        def refuse(*arguments: object) -> None:
            if next(left, None) is not None:
                raise error

        self.before[method] = refuse

    def names(self, method: str) -> list[tuple[object, ...]]:
        """The arguments of every call of ``method`` that succeeded."""
        return [arguments for name, arguments in self.calls if name == method]

    def _note(self, method: str, *arguments: object) -> None:
        if method in self.before:
            self.before[method](*arguments)
        with self._lock:
            self.calls.append((method, arguments))

    def _number(self) -> int:
        with self._lock:
            return next(self._numbers)

    def device_count(self) -> int:
        if not self.devices:
            raise DeviceMissing("there is no device")
        return len(self.devices)

    def device(self, ordinal: int) -> Device:
        for found in self.devices:
            if found.ordinal == ordinal:
                return found
        raise DeviceMissing(f"there is no device {ordinal}")

    def current_device(self) -> int:
        return self.current

    def load_module(self, device: int, code: bytes) -> int:
        self._note("load_module", device, code)
        module = self._number()
        self.modules[module] = code
        return module

    def unload_module(self, device: int, module: int) -> None:
        self._note("unload_module", device, module)
        self._known(self.modules, module)
        del self.modules[module]

    def function(self, module: int, symbol: str) -> int:
        self._note("function", module, symbol)
        self._known(self.modules, module)
        function = self._number()
        self._functions[function] = symbol
        return function

    def workgroups_per_compute_unit(
        self, device: int, function: int, threads: int, dynamic_lds: int
    ) -> int | None:
        self._note("workgroups_per_compute_unit", device, function, threads, dynamic_lds)
        return self.occupancy

    def prepare(
        self,
        device: int,
        function: int,
        grid: Grid,
        block: Grid,
        dynamic_lds: int,
        kernargs: bytearray,
    ) -> Submit:
        symbol = self._functions[function]

        def submit(stream: int) -> None:
            self._note("launch", device, function, stream)
            launched = Launched(device, symbol, grid, block, dynamic_lds, bytes(kernargs), stream)
            self.launches.append(launched)

        return submit

    def is_capturing(self, device: int, stream: int) -> bool:
        return stream in self.capturing

    def create_stream(self, device: int) -> int:
        return self._created("create_stream", device)

    def destroy_stream(self, device: int, stream: int) -> None:
        self._destroyed("destroy_stream", device, stream)

    def synchronize(self, device: int, stream: int | None = None) -> None:
        self._note("synchronize", device, stream)

    def create_event(self, device: int) -> int:
        return self._created("create_event", device)

    def destroy_event(self, device: int, event: int) -> None:
        self._destroyed("destroy_event", device, event)

    def record(self, device: int, event: int, stream: int) -> None:
        self._note("record", device, event, stream)
        self._times[event] = float(len(self.launches))

    def is_done(self, device: int, event: int) -> bool:
        return event in self._times

    def elapsed(self, device: int, start: int, end: int) -> float:
        """One second a launch between the two."""
        return self._times[end] - self._times[start]

    def allocate(self, device: int, size: int, *, uncached: bool = False) -> int:
        self._note("allocate", device, size, uncached)
        address = self._number() << 32
        self._memory[address] = bytearray(size)
        return address

    def free(self, device: int, address: int) -> None:
        self._note("free", device, address)
        self._known(self._memory, address)
        del self._memory[address]

    def fill(self, device: int, address: int, value: int, size: int) -> None:
        self.write(device, address, bytes([value]) * size)

    def write(self, device: int, address: int, data: bytes) -> None:
        block, offset = self._place(address, len(data))
        block[offset : offset + len(data)] = data

    def read(self, device: int, address: int, size: int, *, stream: int | None = None) -> bytes:
        block, offset = self._place(address, size)
        return bytes(block[offset : offset + size])

    def export_memory(self, device: int, address: int) -> bytes:
        self._note("export_memory", device, address)
        self._known(self._memory, address)
        return address.to_bytes(64, "little")

    def import_memory(self, device: int, handle: bytes) -> int:
        self._note("import_memory", device, handle)
        return int.from_bytes(handle, "little")

    def release_memory(self, device: int, address: int) -> None:
        self._note("release_memory", device, address)

    def enable_peer_access(self, device: int, peer: int) -> None:
        self._note("enable_peer_access", device, peer)

    def _created(self, method: str, device: int) -> int:
        self._note(method, device)
        made = self._number()
        self._objects.add(made)
        return made

    def _destroyed(self, method: str, device: int, made: int) -> None:
        self._note(method, device, made)
        self._known(self._objects, made)
        self._objects.remove(made)

    def _place(self, address: int, size: int) -> tuple[bytearray, int]:
        for start, block in self._memory.items():
            if start <= address and address + size <= start + len(block):
                return block, address - start
        raise DriverError(f"address {address:#x} is not allocated")

    def _known(self, known: Container[int], handle: int) -> None:
        if handle not in known:
            raise DriverError(f"no such handle: {handle:#x}")
