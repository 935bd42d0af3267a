"""The driver over HIP: devices, modules, launches, streams, events and memory."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Mapping
from ctypes import byref, c_float, c_int, c_void_p
from pathlib import Path

from mono_runtime.driver import Device, Grid, Submit
from mono_runtime.errors import DeviceMissing, DriverMissing, InvalidValue, Released
from mono_runtime.hip import api as hip
from mono_runtime.hip.api import Api, IpcHandle, Properties
from mono_runtime.hip.calls import Calls
from mono_runtime.hip.describe import architecture_of, partition_of, restriction_of
from mono_runtime.hip.launching import prepare_launch
from mono_runtime.hip.library import Library, find_library

_NOT_READY = 600
_PEER_ACCESS_ALREADY_ENABLED = 704
_STREAM_CAPTURE_IMPLICIT = 906
_BUS_ID_BYTES = 64


def open_hip(path: str | None = None) -> HipDriver:
    """The driver of this process's HIP, or of the library at ``path``; nothing is loaded yet."""
    return HipDriver(path)


class HipDriver:
    """`mono_runtime.driver.Driver` over ``libamdhip64``, which is loaded by the first call.

    Args:
        path: the library; by default `mono_runtime.hip.library.find_library` decides.
        environ: variables that choose the library and restrict compute units.
        sysfs: where the kernel describes PCI devices.

    Every call raises `DriverMissing` when the library is absent, lacks the function, or is not the
    one that torch uses.
    """

    def __init__(
        self,
        path: str | None = None,
        *,
        environ: Mapping[str, str] = os.environ,
        sysfs: Path = Path("/sys"),
    ) -> None:
        self._path = path
        self._environ = environ
        self._sysfs = sysfs
        self._opening = threading.Lock()
        self._opened: Calls | None = None
        self._count: int | None = None
        # HIP ends the process when a module is used on another device than its own.
        self._modules: dict[int, int] = {}

    @property
    def _calls(self) -> Calls:
        calls = self._opened
        if calls is None:
            with self._opening:
                calls = self._opened
                if calls is None:
                    library = find_library(self._path, self._environ)
                    calls = self._opened = Calls(Api(library))
        return calls

    @property
    def library(self) -> Library:
        """The library, loaded."""
        return self._calls.api.library

    @property
    def name(self) -> str:
        """``HIP 7.0 (/opt/rocm/lib/libamdhip64.so.7)``."""
        major, minor = self._version()
        return f"HIP {major}.{minor} ({self.library.path})"

    def check_still_single(self) -> None:
        """Raise `DriverMissing` when torch has loaded another copy of the library since."""
        self.library.check_still_single()

    def _version(self) -> tuple[int, int]:
        # HIP_VERSION is major * 10000000 + minor * 100000 + patch.
        number = c_int()
        self._calls.call("hipRuntimeGetVersion", byref(number))
        return number.value // 10_000_000, number.value // 100_000 % 100

    # ---- devices ----

    def device_count(self) -> int:
        """How many devices this process sees."""
        if self._count is None:
            number = c_int()
            self._calls.call("hipGetDeviceCount", byref(number))
            self._count = number.value
        return self._count

    def device(self, ordinal: int) -> Device:
        """The device of this number, as HIP and the kernel describe it now."""
        count = self.device_count()
        if not 0 <= ordinal < count:
            raise DeviceMissing(
                f"there is no device {ordinal}",
                where=self.name,
                fix=f"this process sees {count}, numbered from 0; HIP_VISIBLE_DEVICES may hide some",
            )
        major, minor = self._version()
        if major not in hip.SUPPORTED_MAJORS:
            raise DriverMissing(
                f"HIP {major}.{minor} describes devices in a way that this runtime does not know",
                where=self.library.path,
                fix=f"use HIP {' or '.join(map(str, hip.SUPPORTED_MAJORS))}",
            )
        properties = Properties()
        units = c_int()
        text = ctypes.create_string_buffer(_BUS_ID_BYTES)
        calls = self._calls
        calls.call("hipGetDevicePropertiesR0600", byref(properties), ordinal, device=ordinal)
        calls.call(
            "hipDeviceGetAttribute", byref(units), hip.MULTIPROCESSOR_COUNT, ordinal, device=ordinal
        )
        calls.call("hipDeviceGetPCIBusId", text, _BUS_ID_BYTES, ordinal, device=ordinal)
        bus_id = text.value.decode().lower()
        return Device(
            ordinal=ordinal,
            name=properties.name.decode(errors="replace"),
            architecture=architecture_of(properties.gcnArchName.decode(errors="replace"), ordinal),
            compute_units=units.value,
            memory=properties.totalGlobalMem,
            bus_id=bus_id,
            partition=partition_of(self._sysfs, bus_id),
            restriction=restriction_of(self._environ),
        )

    def current_device(self) -> int:
        """The calling thread's current device."""
        return self._calls.current_device()

    def enable_peer_access(self, device: int, peer: int) -> None:
        """Let ``device`` address ``peer``'s memory in this process."""
        if device == peer:
            return
        calls = self._calls
        status = calls.status_on(device, "hipDeviceEnablePeerAccess", peer, 0)
        if status == _PEER_ACCESS_ALREADY_ENABLED:
            calls.forget_error()
        elif status != hip.SUCCESS:
            calls.fail("hipDeviceEnablePeerAccess", status, device)

    # ---- modules ----

    def load_module(self, device: int, code: bytes) -> int:
        """Load a code object; `WrongDevice` when it is for another architecture or other features."""
        calls = self._calls
        calls.api.library.check_still_single()
        module = c_void_p()
        calls.on(device, "hipModuleLoadData", byref(module), code)
        handle = module.value or 0
        self._modules[handle] = device
        return handle

    def _device_of(self, module: int) -> int:
        try:
            return self._modules[module]
        except KeyError:
            raise Released(f"module {module:#x} is not loaded", fix="load it again") from None

    def unload_module(self, device: int, module: int) -> None:
        """Release a module."""
        self._calls.on(self._device_of(module), "hipModuleUnload", module)
        del self._modules[module]

    def function(self, module: int, symbol: str) -> int:
        """The kernel of this name."""
        function = c_void_p()
        name = symbol.encode()
        device = self._device_of(module)
        self._calls.on(device, "hipModuleGetFunction", byref(function), module, name)
        return function.value or 0

    def workgroups_per_compute_unit(
        self, device: int, function: int, threads: int, dynamic_lds: int
    ) -> int | None:
        """How many workgroups a compute unit holds at once; None when HIP does not say."""
        name = "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor"
        calls = self._calls
        count = c_int()
        status = calls.status_on(device, name, byref(count), function, threads, dynamic_lds)
        if status == hip.NOT_SUPPORTED:
            calls.forget_error()
            return None
        if status != hip.SUCCESS:
            calls.fail(name, status, device)
        return count.value

    def prepare(
        self,
        device: int,
        function: int,
        grid: Grid,
        block: Grid,
        dynamic_lds: int,
        kernargs: bytearray,
    ) -> Submit:
        """A callable that launches with what ``kernargs`` holds at the time of each call."""
        several = self.device_count() > 1
        return prepare_launch(
            self._calls, device, function, grid, block, dynamic_lds, kernargs, several
        )

    # ---- streams and events ----

    def is_capturing(self, device: int, stream: int) -> bool:
        """Whether ``stream`` is recording a graph, or would become part of a recording one.

        The default stream is the second: while a stream that waits for it is captured, HIP lets
        nothing onto it.
        """
        calls = self._calls
        state = c_int()
        status = calls.status_on(device, "hipStreamIsCapturing", stream, byref(state))
        if status == _STREAM_CAPTURE_IMPLICIT:
            calls.forget_error()
            return True
        if status != hip.SUCCESS:
            calls.fail("hipStreamIsCapturing", status, device)
        return state.value != 0

    def create_stream(self, device: int) -> int:
        """A new stream that does not wait for the default one."""
        return self._new(device, "hipStreamCreateWithFlags", hip.STREAM_NON_BLOCKING)

    def destroy_stream(self, device: int, stream: int) -> None:
        """Release a stream."""
        self._calls.on(device, "hipStreamDestroy", stream)

    def synchronize(self, device: int, stream: int | None = None) -> None:
        """Wait for ``stream``, or for everything on ``device``."""
        if stream is None:
            self._calls.on(device, "hipDeviceSynchronize")
        else:
            self._calls.on(device, "hipStreamSynchronize", stream)

    def create_event(self, device: int) -> int:
        """A new event that keeps times."""
        return self._new(device, "hipEventCreateWithFlags", 0)

    def destroy_event(self, device: int, event: int) -> None:
        """Release an event."""
        self._calls.on(device, "hipEventDestroy", event)

    def record(self, device: int, event: int, stream: int) -> None:
        """Mark the present end of ``stream``."""
        self._calls.on(device, "hipEventRecord", event, stream)

    def is_done(self, device: int, event: int) -> bool:
        """Whether everything before the mark has finished."""
        calls = self._calls
        status = calls.status_on(device, "hipEventQuery", event)
        if status == _NOT_READY:
            calls.forget_error()
            return False
        if status != hip.SUCCESS:
            calls.fail("hipEventQuery", status, device)
        return True

    def elapsed(self, device: int, start: int, end: int) -> float:
        """Seconds between two finished events."""
        milliseconds = c_float()
        self._calls.on(device, "hipEventElapsedTime", byref(milliseconds), start, end)
        return milliseconds.value / 1000

    def _new(self, device: int, function: str, flags: int) -> int:
        handle = c_void_p()
        self._calls.on(device, function, byref(handle), flags)
        return handle.value or 0

    # ---- memory ----

    def allocate(self, device: int, size: int, *, uncached: bool = False) -> int:
        """``size`` bytes of device memory."""
        if size <= 0:
            raise InvalidValue(f"cannot allocate {size} bytes", fix="ask for at least one")
        address = c_void_p()
        calls = self._calls
        if uncached:
            flags = hip.MALLOC_UNCACHED
            calls.on(device, "hipExtMallocWithFlags", byref(address), size, flags)
        else:
            calls.on(device, "hipMalloc", byref(address), size)
        return address.value or 0

    def free(self, device: int, address: int) -> None:
        """Release what `allocate` gave."""
        self._calls.on(device, "hipFree", address)

    def fill(self, device: int, address: int, value: int, size: int) -> None:
        """Set ``size`` bytes to ``value`` and wait for it."""
        if not 0 <= value <= 255:
            raise InvalidValue(f"{value} is not a byte")
        self._calls.on(device, "hipMemset", address, value, size)
        # hipMemset of device memory returns before it is done.
        self._calls.on(device, "hipStreamSynchronize", 0)

    def write(self, device: int, address: int, data: bytes) -> None:
        """Copy ``data`` to the device and wait for it."""
        self._calls.on(device, "hipMemcpy", address, data, len(data), hip.HOST_TO_DEVICE)

    def read(self, device: int, address: int, size: int, *, stream: int | None = None) -> bytes:
        """Copy ``size`` bytes from the device; with ``stream``, after nothing but what that holds."""
        calls = self._calls
        buffer = ctypes.create_string_buffer(size)
        if stream is None:
            calls.on(device, "hipMemcpy", buffer, address, size, hip.DEVICE_TO_HOST)
            return buffer.raw
        # Waiting for any stream spoils the captures of all threads, unless this one is relaxed.
        with calls.relaxed_about_captures():
            calls.on(device, "hipMemcpyAsync", buffer, address, size, hip.DEVICE_TO_HOST, stream)
            calls.on(device, "hipStreamSynchronize", stream)
        return buffer.raw

    def export_memory(self, device: int, address: int) -> bytes:
        """A handle of 64 bytes by which another process can map this allocation."""
        handle = IpcHandle()
        self._calls.on(device, "hipIpcGetMemHandle", byref(handle), address)
        return bytes(handle)

    def import_memory(self, device: int, handle: bytes) -> int:
        """Map another process's allocation for ``device``."""
        if len(handle) != hip.IPC_HANDLE_SIZE:
            raise InvalidValue(
                f"a memory handle has {hip.IPC_HANDLE_SIZE} bytes, and this has {len(handle)}"
            )
        address = c_void_p()
        copy = IpcHandle.from_buffer_copy(handle)
        flags = hip.IPC_LAZY_PEER_ACCESS
        self._calls.on(device, "hipIpcOpenMemHandle", byref(address), copy, flags)
        return address.value or 0

    def release_memory(self, device: int, address: int) -> None:
        """Undo `import_memory`."""
        self._calls.on(device, "hipIpcCloseMemHandle", address)
