"""The narrow interface between the runtime and a device: HIP, the emulator, or a test's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from mono_runtime.arch import Architecture

Grid = tuple[int, int, int]
# Takes a raw stream (an address; 0 is the default stream) and returns when the launch is enqueued.
Submit = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Device:
    """One device as its driver describes it.

    Attributes:
        ordinal: its number in this process.
        name: the product, as the driver spells it.
        architecture: base name and the feature flags that the device runs with.
        compute_units: those that a kernel can use in the present partition mode.
        memory: bytes of device memory.
        bus_id: PCI address ``domain:bus:device.function`` in hexadecimal, the same in every process.
        partition: compute partition mode (``SPX``, ``CPX`` ...), or None when it is not known.
        restriction: why fewer compute units than these may serve a launch, or None.
    """

    ordinal: int
    name: str
    architecture: Architecture
    compute_units: int
    memory: int = 0
    bus_id: str = ""
    partition: str | None = None
    restriction: str | None = None


class Driver(Protocol):
    """What the runtime asks of a device's driver.

    Handles (modules, functions, streams, events) and addresses are integers. Every method raises
    `mono_runtime.errors.DriverError` when the driver reports a failure. All methods may be called from
    any thread; none changes the calling thread's current device for its caller.
    """

    @property
    def name(self) -> str:
        """What it is, for messages: ``HIP 7.0 (/opt/rocm/lib/libamdhip64.so.7)``."""

    def device_count(self) -> int:
        """How many devices this process sees; `DeviceMissing` when there is none."""

    def device(self, ordinal: int) -> Device:
        """The device of this number; `DeviceMissing` when there is no such device."""

    def current_device(self) -> int:
        """The calling thread's current device."""

    def load_module(self, device: int, code: bytes) -> int:
        """Load a code object on ``device``; the caller keeps ``code`` alive until `unload_module`."""

    def unload_module(self, device: int, module: int) -> None:
        """Release a module; its functions are gone with it."""

    def function(self, module: int, symbol: str) -> int:
        """The kernel of this name."""

    def workgroups_per_compute_unit(
        self, device: int, function: int, threads: int, dynamic_lds: int
    ) -> int | None:
        """How many workgroups a compute unit holds at once; None when the driver cannot tell."""

    def prepare(
        self,
        device: int,
        function: int,
        grid: Grid,
        block: Grid,
        dynamic_lds: int,
        kernargs: bytearray,
    ) -> Submit:
        """A callable that launches with what ``kernargs`` holds at the time of each call.

        ``grid`` is workgroups, ``block`` work-items, ``dynamic_lds`` and the buffer are bytes. The
        kernargs are copied before the call returns, also when the stream is being captured. The
        callable keeps ``kernargs`` alive.
        """

    def is_capturing(self, device: int, stream: int) -> bool:
        """Whether ``stream`` is recording a graph."""

    def create_stream(self, device: int) -> int:
        """A new stream of ``device`` that does not wait for the default one."""

    def destroy_stream(self, device: int, stream: int) -> None:
        """Release a stream."""

    def synchronize(self, device: int, stream: int | None = None) -> None:
        """Wait for ``stream``, or for everything on ``device``."""

    def create_event(self, device: int) -> int:
        """A new event that keeps times."""

    def destroy_event(self, device: int, event: int) -> None:
        """Release an event."""

    def record(self, device: int, event: int, stream: int) -> None:
        """Mark the present end of ``stream``."""

    def is_done(self, device: int, event: int) -> bool:
        """Whether everything before the mark has finished; never waits."""

    def elapsed(self, device: int, start: int, end: int) -> float:
        """Seconds between two finished events."""

    def allocate(self, device: int, size: int, *, uncached: bool = False) -> int:
        """``size`` bytes of device memory; ``uncached`` memory is coherent between devices."""

    def free(self, device: int, address: int) -> None:
        """Release what `allocate` gave."""

    def fill(self, device: int, address: int, value: int, size: int) -> None:
        """Set ``size`` bytes to ``value`` (0 to 255) and wait for it."""

    def write(self, device: int, address: int, data: bytes) -> None:
        """Copy ``data`` to the device and wait for it."""

    def read(self, device: int, address: int, size: int, *, stream: int | None = None) -> bytes:
        """Copy ``size`` bytes from the device, after what the default stream holds.

        With ``stream``, one that `create_stream` made: after what that holds and nothing else, so memory
        that a running launch writes is read as it is, also while other threads record graphs.
        """

    def export_memory(self, device: int, address: int) -> bytes:
        """A handle by which another process can map this allocation."""

    def import_memory(self, device: int, handle: bytes) -> int:
        """Map another process's allocation for ``device``; its address here."""

    def release_memory(self, device: int, address: int) -> None:
        """Undo `import_memory`."""

    def enable_peer_access(self, device: int, peer: int) -> None:
        """Let ``device`` address ``peer``'s memory in this process; twice does no harm."""
