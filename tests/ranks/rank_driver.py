"""A driver whose devices are byte arrays, so that ranks which are threads can stand for processes."""

from __future__ import annotations

import threading
from collections.abc import Callable

from mono_runtime.arch import Architecture
from mono_runtime.driver import Device
from mono_runtime.errors import DriverError


class Machine:
    """What the ranks' drivers have in common, and what happened there, in order."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.memory: dict[int, bytearray] = {}
        self.mappings: dict[int, int] = {}
        self.happened: list[tuple[int, str]] = []
        self._next = 0x1000

    def new_address(self) -> int:
        self._next += 0x100000
        return self._next

    def kinds(self) -> list[str]:
        """What happened, without the ranks, each repetition once."""
        names = [name for _, name in self.happened]
        return [n for i, n in enumerate(names) if i == 0 or names[i - 1] != n]


class RankDriver:
    """The part of `mono_runtime.driver.Driver` that peer memory uses.

    ``fail`` maps a method's name to the number of its calls that succeed before one fails.
    """

    name = "made up"

    def __init__(self, machine: Machine, rank: int, fail: dict[str, int] | None = None) -> None:
        self.machine = machine
        self.rank = rank
        self.fail = dict(fail or {})
        self.before: dict[str, Callable[[], None]] = {}
        self.uncached: list[bool] = []
        self.sizes: list[int] = []

    def _happens(self, name: str) -> None:
        if name in self.before:
            self.before[name]()
        with self.machine.lock:
            if name in self.fail:
                self.fail[name] -= 1
                if self.fail[name] < 0:
                    raise DriverError(f"{name} was told to fail")
            self.machine.happened.append((self.rank, name))

    def device(self, ordinal: int) -> Device:
        self._happens("device")
        return Device(ordinal, "made up", Architecture("gfx942"), 304, bus_id=f"0000:0{ordinal}")

    def synchronize(self, device: int, stream: int | None = None) -> None:
        self._happens("synchronize")

    def allocate(self, device: int, size: int, *, uncached: bool = False) -> int:
        self._happens("allocate")
        self.uncached.append(uncached)
        self.sizes.append(size)
        with self.machine.lock:
            address = self.machine.new_address()
            self.machine.memory[address] = bytearray(b"\xee" * size)
        return address

    def free(self, device: int, address: int) -> None:
        self._happens("free")
        with self.machine.lock:
            del self.machine.memory[address]

    def fill(self, device: int, address: int, value: int, size: int) -> None:
        self._happens("fill")
        self._at(address)[:size] = bytes([value]) * size

    def write(self, device: int, address: int, data: bytes) -> None:
        self._happens("write")
        self._at(address)[: len(data)] = data

    def read(self, device: int, address: int, size: int, *, stream: int | None = None) -> bytes:
        self._happens("read")
        return bytes(self._at(address)[:size])

    def export_memory(self, device: int, address: int) -> bytes:
        self._happens("export_memory")
        return address.to_bytes(64, "little")

    def import_memory(self, device: int, handle: bytes) -> int:
        self._happens("import_memory")
        with self.machine.lock:
            address = self.machine.new_address()
            self.machine.mappings[address] = int.from_bytes(handle, "little")
        return address

    def release_memory(self, device: int, address: int) -> None:
        self._happens("release_memory")
        with self.machine.lock:
            del self.machine.mappings[address]

    def enable_peer_access(self, device: int, peer: int) -> None:
        self._happens(f"enable_peer_access {device} {peer}")

    def _at(self, address: int) -> bytearray:
        return self.machine.memory[self.machine.mappings.get(address, address)]
