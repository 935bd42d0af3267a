"""`EmulatedDriver`: the runtime's driver interface on emulated devices."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import count

from mono_build.emulator.code import LoadedCode, load_code
from mono_build.emulator.engine import Schedule
from mono_build.emulator.launches import (
    Function,
    Launch,
    LaunchRecord,
    Module,
    Shape,
    make_launch,
)
from mono_build.emulator.memory import DeviceMemory
from mono_build.emulator.objects import read_object
from mono_build.emulator.running import Running
from mono_build.emulator.streams import Streams
from mono_build.targets import devices_for
from mono_runtime.arch import Architecture, parse_architecture
from mono_runtime.driver import Device, Grid, Submit
from mono_runtime.errors import DeviceMissing, DriverError
from mono_runtime.occupancy import workgroups_per_compute_unit
from mono_runtime.targets import TARGETS

_PACKET = 64
# HIP gives the handles 0, 1 and 2 to the default streams of whichever device is current.
_FIRST_HANDLE = 3


class EmulatedDriver:
    """Emulated devices of one process.

    Launches are asynchronous: they run when somebody waits for one, or reads or writes memory, and
    then those of all devices run together, so that ranks can wait for each other.

    Args:
        devices: the architecture of each device (``gfx942``, ``gfx950``).
        schedule: how waves take turns.
        wait: seconds that a launch may wait for what other threads or processes have yet to do.
    """

    def __init__(
        self,
        devices: Sequence[str] = ("gfx950",),
        *,
        schedule: Schedule | None = None,
        wait: float = 30.0,
    ) -> None:
        self._architectures = [parse_architecture(d) for d in devices]
        for architecture in self._architectures:
            if architecture.name not in TARGETS:
                raise DeviceMissing(f"the emulator does not model {architecture}")
        self._memory = DeviceMemory()
        self._running = Running(self._memory, schedule or Schedule(), wait)
        self._codes: dict[str, LoadedCode] = {}
        self._modules: dict[int, Module] = {}
        self._functions: dict[int, Function] = {}
        self._numbers = count(_FIRST_HANDLE)
        self._streams = Streams(self._numbers)

    # Devices.

    @property
    def name(self) -> str:
        """What it is, for messages."""
        names = ", ".join(map(str, self._architectures))
        return f"emulator (ISA model of {names})"

    def device_count(self) -> int:
        """How many devices were asked for."""
        return len(self._architectures)

    def device(self, ordinal: int) -> Device:
        """The emulated device: the first product of its architecture, unpartitioned."""
        architecture = self._architecture(ordinal)
        product = devices_for(architecture.name)[0]
        return Device(
            ordinal=ordinal,
            name=f"{product.name} (emulated)",
            architecture=architecture,
            compute_units=product.compute_units,
            bus_id=f"0000:{ordinal + 1:02x}:00.0",
            partition="SPX",
        )

    def current_device(self) -> int:
        """Always 0: an emulated thread has no device of its own."""
        return 0

    def _architecture(self, ordinal: int) -> Architecture:
        if not 0 <= ordinal < len(self._architectures):
            raise DeviceMissing(f"there is no emulated device {ordinal}")
        return self._architectures[ordinal]

    # Code.

    def load_module(self, device: int, code: bytes) -> int:
        """Translate a code object, or take it from the cache, and put its bytes into memory."""
        architecture = self._architecture(device)
        image = read_object(code)
        if image.arch != architecture.name:
            raise DriverError(f"a code object for {image.arch} on a {architecture} device")
        with self._running.locked():
            loaded = self._codes.get(image.digest)
        loaded = loaded or load_code(image)
        with self._running.locked():
            self._codes[image.digest] = loaded
            size = max(start + length for start, _, length in image.segments)
            memory = self._memory.allocate(device, size, "code object")
            for start, data, _ in image.segments:
                ctypes.memmove(memory + start, data, len(data))
            handle = next(self._numbers)
            self._modules[handle] = Module(device, loaded, memory, memory)
        return handle

    def unload_module(self, device: int, module: int) -> None:
        """Release a module, after what runs has ended."""
        self.synchronize(device)
        with self._running.locked():
            found = self._modules.pop(module, None)
            if found is None:
                raise DriverError(f"no module {module}")
            self._functions = {h: f for h, f in self._functions.items() if f.module != module}
            self._free(found.memory)

    def function(self, module: int, symbol: str) -> int:
        """The kernel of this name."""
        with self._running.locked():
            found = self._modules.get(module)
            if found is None:
                raise DriverError(f"no module {module}")
            kernel = found.code.image.kernels.get(symbol)
            if kernel is None:
                names = ", ".join(found.code.image.kernels)
                raise DriverError(f"no kernel {symbol}", where=f"the code object has {names}")
            handle = next(self._numbers)
            self._functions[handle] = Function(module, kernel)
            return handle

    def workgroups_per_compute_unit(
        self, device: int, function: int, threads: int, dynamic_lds: int
    ) -> int | None:
        """By the architecture's registers, wave slots and LDS."""
        target = TARGETS[self._architecture(device).name]
        resources = self._function(function).kernel.resources
        return workgroups_per_compute_unit(target, resources, threads, dynamic_lds)

    def _function(self, handle: int) -> Function:
        found = self._functions.get(handle)
        if found is None:
            raise DriverError(f"no function {handle}")
        return found

    # Launching.

    def prepare(
        self,
        device: int,
        function: int,
        grid: Grid,
        block: Grid,
        dynamic_lds: int,
        kernargs: bytearray,
    ) -> Submit:
        """A callable that queues the launch with what ``kernargs`` holds at that moment."""
        found = self._function(function)
        module = self._modules[found.module]
        shape = Shape(grid, block, dynamic_lds)
        capacity = self._capacity(device, found, shape)
        if module.device != device:
            raise DriverError(f"function {function} was loaded on device {module.device}")
        if len(kernargs) < found.kernel.resources.kernarg:
            raise DriverError(
                f"{found.kernel.symbol} takes {found.kernel.resources.kernarg} bytes of arguments,"
                f" not {len(kernargs)}"
            )

        def submit(stream: int) -> None:
            if 0 in grid:
                return
            with self._running.locked():
                self._streams.check(device, stream)
                place = self._memory.allocate(-1, max(1, len(kernargs)), "arguments")
                ctypes.memmove(place, bytes(kernargs), len(kernargs))
                launch = make_launch(found, module, stream, shape, capacity, place)
                self._describe_dispatch(launch, shape)
                self._running.submit(launch)

        return submit

    def _capacity(self, device: int, function: Function, shape: Shape) -> int:
        """How many workgroups the whole device holds; checks the shape."""
        threads = shape.block[0] * shape.block[1] * shape.block[2]
        resources = function.kernel.resources
        if not 0 < threads <= resources.max_workgroup or min(shape.grid) < 0:
            raise DriverError(
                f"{resources.symbol}: {threads} work-items a workgroup, 1 to {resources.max_workgroup}"
                " are allowed"
            )
        target = TARGETS[self._architecture(device).name]
        each = workgroups_per_compute_unit(target, resources, threads, shape.dynamic_lds)
        if each < 1:
            raise DriverError(f"{resources.symbol}: not one workgroup fits on a compute unit")
        return each * self.device(device).compute_units

    def _describe_dispatch(self, launch: Launch, shape: Shape) -> None:
        """The dispatch packet, for kernels that ask for it (HSA, AQL kernel dispatch packet)."""
        if launch.function.kernel.dispatch_sgpr is None:
            return
        place = self._memory.allocate(-1, _PACKET, "dispatch packet")
        sizes = (ctypes.c_uint16 * 3)(*shape.block)
        totals = (ctypes.c_uint32 * 3)(
            *(g * b for g, b in zip(shape.grid, shape.block, strict=True))
        )
        ctypes.memmove(place + 4, sizes, 6)
        ctypes.memmove(place + 12, totals, 12)
        launch.struct.dispatch = place

    def is_capturing(self, device: int, stream: int) -> bool:
        """Never: the emulator has no graphs."""
        return False

    def create_stream(self, device: int) -> int:
        """A stream that runs beside the default one."""
        self._architecture(device)
        with self._running.locked():
            return self._streams.create(device)

    def destroy_stream(self, device: int, stream: int) -> None:
        """Release a stream, after its launches."""
        self.synchronize(device, stream)
        with self._running.locked():
            self._streams.destroy(stream)

    def create_event(self, device: int) -> int:
        """A new event; its times are this computer's."""
        self._architecture(device)
        with self._running.locked():
            return self._streams.create_event()

    def destroy_event(self, device: int, event: int) -> None:
        """Release an event."""
        with self._running.locked():
            self._streams.destroy_event(event)

    def record(self, device: int, event: int, stream: int) -> None:
        """Mark the present end of ``stream``."""
        with self._running.locked():
            self._streams.check(device, stream)
            self._streams.record(event, self._running.last(device, stream))

    def is_done(self, device: int, event: int) -> bool:
        """Whether everything before the mark has ended; lets the emulator go on a little if not."""
        with self._running.locked():
            if not self._streams.is_done(event):
                self._running.advance()
            return self._streams.is_done(event)

    def elapsed(self, device: int, start: int, end: int) -> float:
        """Seconds that this computer took between two marks: not a GPU's time."""
        with self._running.locked():
            return self._streams.elapsed(start, end)

    # Waiting.

    def synchronize(self, device: int, stream: int | None = None) -> None:
        """Run until ``stream``, or everything on ``device``, has ended.

        Raises:
            EmulationError: a launch stopped; its subclasses say why.
        """
        self._architecture(device)
        self._running.run_until(
            lambda launch: launch.device == device and stream in (None, launch.stream)
        )

    def use(self, schedule: Schedule) -> None:
        """Let waves take turns by ``schedule`` from now on; `DriverError` while something runs."""
        with self._running.locked():
            self._running.use(schedule)

    def take_records(self) -> list[LaunchRecord]:
        """What finished launches did since the last call, in the order of their ends."""
        with self._running.locked():
            return self._running.take_records()

    # Memory.

    def allocate(self, device: int, size: int, *, uncached: bool = False) -> int:
        """``size`` bytes; ``uncached`` ones can be exported to other processes."""
        self._architecture(device)
        with self._running.locked():
            address = self._memory.allocate(device, size, is_shared=uncached)
            self._running.forget_sites()
            return address

    def free(self, device: int, address: int) -> None:
        """Release an allocation, after what runs on ``device`` has ended."""
        self.synchronize(device)
        with self._running.locked():
            self._free(address)

    def _free(self, address: int) -> None:
        self._memory.free(address)
        self._running.forget_sites()

    def fill(self, device: int, address: int, value: int, size: int) -> None:
        """Set bytes, after what the default stream holds."""
        self._access(device, address, size, "fill")
        ctypes.memset(address, value, size)

    def write(self, device: int, address: int, data: bytes) -> None:
        """Copy to the device, after what the default stream holds."""
        self._access(device, address, len(data), "write")
        ctypes.memmove(address, data, len(data))

    def read(self, device: int, address: int, size: int, *, stream: int | None = None) -> bytes:
        """Copy from the device, after what ``stream``, or else the default one, holds."""
        self._access(device, address, size, "read", stream or 0)
        return ctypes.string_at(address, size)

    def _access(self, device: int, address: int, size: int, action: str, stream: int = 0) -> None:
        self.synchronize(device, stream)
        with self._running.locked():
            self._memory.check(address, size, action)

    def export_memory(self, device: int, address: int) -> bytes:
        """A handle for other processes of this user; for ``uncached`` allocations."""
        with self._running.locked():
            return self._memory.export(address)

    def import_memory(self, device: int, handle: bytes) -> int:
        """Map another process's allocation; this process's own keeps its address."""
        self._architecture(device)
        with self._running.locked():
            return self._memory.import_(device, handle)

    def release_memory(self, device: int, address: int) -> None:
        """Undo `import_memory`."""
        self.synchronize(device)
        with self._running.locked():
            self._memory.release(address)
            self._running.forget_sites()

    def enable_peer_access(self, device: int, peer: int) -> None:
        """Nothing to do: emulated devices of a process share its address space."""
        self._architecture(device)
        self._architecture(peer)

    def close(self) -> None:
        """End what runs and release the scheduler."""
        with self._running.locked():
            self._running.close()
