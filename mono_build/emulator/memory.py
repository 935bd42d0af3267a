"""Device memory: pieces of this process's memory, each with a gap around it that nothing may touch."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field

from mono_build.emulator.engine import MapStruct, RangeStruct
from mono_runtime.errors import DriverError

# Address space around each allocation, so that a small overrun never meets a neighbour. It costs nothing.
_GAP = 1 << 20
_PAGE = mmap.PAGESIZE
_IMPORTED = "imported allocation"
# Released allocations whose addresses stay unused, so that a late access to one is seen. Their memory is given back.
_KEPT = 64


@dataclass(frozen=True, slots=True)
class Allocation:
    """Bytes of an emulated device (device -1: what launches share, such as code and arguments)."""

    device: int
    address: int
    size: int
    what: str


@dataclass
class _Held:
    allocation: Allocation
    mapping: mmap.mmap
    exporter: object
    file: int | None = None
    imports: int = 0


@dataclass
class DeviceMemory:
    """All allocations of all emulated devices of this process; the caller locks."""

    _held: dict[int, _Held] = field(default_factory=dict)
    _map: MapStruct = field(default_factory=MapStruct)
    _ranges: object = None
    _is_current: bool = False
    _released: deque[mmap.mmap] = field(default_factory=lambda: deque(maxlen=_KEPT))

    def allocate(
        self, device: int, size: int, what: str = "allocation", *, is_shared: bool = False
    ) -> int:
        """The address of ``size`` bytes; ``is_shared`` ones can be exported to other processes."""
        if size <= 0:
            raise DriverError(f"cannot allocate {size} bytes", where=f"device {device}")
        rounded = -(-size // _PAGE) * _PAGE
        file = None
        try:
            if is_shared:
                file = os.memfd_create("mono-emulator", os.MFD_CLOEXEC)
                os.ftruncate(file, rounded + 2 * _GAP)
                mapping = mmap.mmap(file, rounded + 2 * _GAP)
            else:
                flags = (
                    mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
                )
                mapping = mmap.mmap(-1, rounded + 2 * _GAP, flags=flags)
        except OSError as error:
            raise DriverError(
                f"no memory for {size} bytes: {error.strerror}", where=f"device {device}"
            ) from error
        return self._hold(device, size, what, mapping, file)

    def _hold(self, device: int, size: int, what: str, mapping: mmap.mmap, file: int | None) -> int:
        exporter = ctypes.c_char.from_buffer(mapping)
        address = ctypes.addressof(exporter) + _GAP
        allocation = Allocation(device, address, size, what)
        self._held[address] = _Held(allocation, mapping, exporter, file)
        self._is_current = False
        return address

    def free(self, address: int) -> None:
        """Release an allocation; `DriverError` when none begins there."""
        held = self._held.pop(address, None)
        if held is None:
            raise DriverError(f"no allocation begins at 0x{address:x}")
        self._is_current = False
        held.exporter = None
        if held.file is not None:
            os.close(held.file)
        if held.allocation.device >= 0:
            # Another process's memory is left as it is; this one's own is given back.
            is_own = held.allocation.what != _IMPORTED
            give_back = mmap.MADV_DONTNEED if held.file is None else mmap.MADV_REMOVE
            held.mapping.madvise(give_back if is_own else mmap.MADV_DONTNEED)
            self._released.append(held.mapping)
        else:
            held.mapping.close()

    def owner(self, address: int) -> Allocation | None:
        """The allocation that begins at ``address``."""
        held = self._held.get(address)
        return held.allocation if held else None

    def check(self, address: int, size: int, action: str) -> None:
        """Raise `DriverError` unless ``size`` bytes at ``address`` lie in one allocation."""
        found = self.nearest(address)
        if (
            found is None
            or not found.address <= address <= address + size <= found.address + found.size
        ):
            raise DriverError(
                f"cannot {action} {size} bytes at 0x{address:x}: {self.explain(address)}"
            )

    def nearest(self, address: int) -> Allocation | None:
        """The allocation with the highest start that is not above ``address``."""
        starts = sorted(self._held)
        index = bisect_right(starts, address)
        return self._held[starts[index - 1]].allocation if index else None

    def explain(self, address: int) -> str:
        """Where ``address`` lies, seen from the allocations around it."""
        below = self.nearest(address)
        starts = sorted(self._held)
        index = bisect_right(starts, address)
        above = self._held[starts[index]].allocation if index < len(starts) else None
        notes = []
        if below is not None:
            end = below.address + below.size
            place = "inside" if address < end else f"{address - end} bytes behind the end of"
            notes.append(f"{place} {_named(below)}")
        if above is not None and above.address - address < _GAP:
            notes.append(f"{above.address - address} bytes before {_named(above)}")
        return "; ".join(notes) or "no allocation is near"

    def table(self) -> MapStruct:
        """What the scheduler checks accesses with; valid until the next allocation or release."""
        if not self._is_current:
            allocations = sorted(
                (h.allocation for h in self._held.values()), key=lambda a: a.address
            )
            ranges = (RangeStruct * max(1, len(allocations)))()
            for place, allocation in zip(ranges, allocations, strict=False):
                place.start = allocation.address
                place.end = allocation.address + allocation.size
            self._ranges = ranges
            self._map.ranges = ctypes.cast(ranges, ctypes.POINTER(RangeStruct))
            self._map.count = len(allocations)
            self._is_current = True
        return self._map

    def used(self, device: int) -> int:
        """Bytes allocated on ``device``."""
        return sum(h.allocation.size for h in self._held.values() if h.allocation.device == device)

    def export(self, address: int) -> bytes:
        """A handle by which another process of this user can map a shared allocation."""
        held = self._held.get(address)
        if held is None:
            raise DriverError(f"no allocation begins at 0x{address:x}")
        if held.file is None:
            raise DriverError(
                "the emulator can share only uncached memory with other processes",
                fix="allocate it with uncached=True",
            )
        size = held.allocation.size
        return json.dumps(
            {"pid": os.getpid(), "file": held.file, "size": size, "at": address}
        ).encode()

    def import_(self, device: int, handle: bytes) -> int:
        """Map another process's allocation, or find this process's own."""
        try:
            facts = json.loads(handle)
            pid, file, size, at = (int(facts[k]) for k in ("pid", "file", "size", "at"))
        except (ValueError, KeyError, TypeError) as error:
            raise DriverError(f"not a handle of emulated memory: {error}") from error
        if pid == os.getpid():
            if at not in self._held:
                raise DriverError(f"the allocation at 0x{at:x} has been released")
            self._held[at].imports += 1
            return at
        try:
            opened = os.open(f"/proc/{pid}/fd/{file}", os.O_RDWR | os.O_CLOEXEC)
            mapping = mmap.mmap(opened, -(-size // _PAGE) * _PAGE + 2 * _GAP)
        except (OSError, ValueError) as error:
            raise DriverError(f"cannot map the memory of process {pid}: {error}") from error
        return self._hold(device, size, _IMPORTED, mapping, opened)

    def release(self, address: int) -> None:
        """Undo `import_`."""
        held = self._held.get(address)
        if held is not None and held.imports:
            held.imports -= 1
        else:
            self.free(address)

    def has_imports(self) -> bool:
        """Whether other processes' memory is mapped here."""
        return any(h.allocation.what == _IMPORTED for h in self._held.values())


def _named(allocation: Allocation) -> str:
    owner = f"device {allocation.device}'s " if allocation.device >= 0 else ""
    return f"{owner}{allocation.what} of {allocation.size} bytes at 0x{allocation.address:x}"
