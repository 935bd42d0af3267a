"""A case's buffers on devices: allocating, writing, reading, and bringing them back for a further run."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator

import torch
from torch import Tensor

from mono_build.emulator.cases.case import Address, Buffer, Case
from mono_runtime.driver import Driver

# Large contents are never copied as a whole.
_CHUNK = 64 << 20


class CaseMemory:
    """The buffers of a case on the devices of a driver: rank ``r`` lives on device ``r``."""

    def __init__(self, driver: Driver, case: Case) -> None:
        """Allocate every buffer, then write what it holds.

        Raises:
            DriverError: there is not enough memory.
        """
        self._driver = driver
        self._case = case
        self._addresses: list[dict[str, int]] = []
        self._checksums: dict[tuple[int, str], int] = {}
        self._reads: dict[str, str] = {}
        try:
            for rank, buffers in enumerate(case.buffers):
                self._addresses.append({})
                for name, buffer in buffers.items():
                    self._addresses[rank][name] = driver.allocate(
                        rank, buffer.size, uncached=buffer.uncached
                    )
            for rank, name, buffer in self._buffers():
                if buffer.fill is not None:
                    driver.fill(rank, self._addresses[rank][name], buffer.fill, buffer.size)
                self._write(rank, name, buffer)
        except BaseException:
            self.close()
            raise

    def address(self, rank: int, of: Address) -> int:
        """Where ``of`` lies for a caller on ``rank``."""
        return self._addresses[rank if of.rank is None else of.rank][of.buffer] + of.offset

    def read(self, rank: int, buffer: str, offset: int, size: int) -> Tensor:
        """``size`` bytes of a rank's buffer as a uint8 tensor; noted for `take_reads`."""
        data = self._driver.read(rank, self._addresses[rank][buffer] + offset, size)
        name = f"{buffer}[{offset}:{offset + size}] of rank {rank}"
        self._reads[name] = hashlib.sha256(data).hexdigest()
        return torch.frombuffer(bytearray(data), dtype=torch.uint8)

    def take_reads(self) -> dict[str, str]:
        """The digest of everything that was read since the last call, by place."""
        taken, self._reads = self._reads, {}
        return taken

    def remember(self) -> None:
        """Note what every buffer holds before the first launch, for `restore`."""
        for rank, name, buffer in self._buffers():
            self._checksums[rank, name] = self._checksum(rank, name, buffer)

    def restore(self) -> None:
        """Write again what launches have changed since `remember`.

        Large weights are not made a second time, as no launch writes them.
        """
        for rank, name, buffer in self._buffers():
            if self._checksum(rank, name, buffer) != self._checksums[rank, name]:
                start = self._addresses[rank][name]
                # Fresh memory is zero, and an output of an earlier run must not pass for a later one's.
                self._driver.fill(rank, start, buffer.fill or 0, buffer.size)
                self._write(rank, name, buffer)

    def close(self) -> None:
        """Free everything; the second time does nothing."""
        addresses, self._addresses = self._addresses, []
        for rank, buffers in enumerate(addresses):
            for address in buffers.values():
                self._driver.free(rank, address)

    def _buffers(self) -> Iterator[tuple[int, str, Buffer]]:
        for rank, buffers in enumerate(self._case.buffers):
            for name, buffer in buffers.items():
                yield rank, name, buffer

    def _write(self, rank: int, name: str, buffer: Buffer) -> None:
        start = self._addresses[rank][name]
        for part in buffer.parts:
            flat = part.tensor().contiguous().flatten().view(torch.uint8)
            for at in range(0, flat.numel(), _CHUNK):
                piece = flat[at : at + _CHUNK].numpy().tobytes()
                self._driver.write(rank, start + part.offset + at, piece)
        if buffer.table:
            table = [self.address(rank, entry) for entry in buffer.table]
            self._driver.write(rank, start, struct.pack(f"<{len(table)}q", *table))

    def _checksum(self, rank: int, name: str, buffer: Buffer) -> int:
        start, value = self._addresses[rank][name], 0
        for at in range(0, buffer.size, _CHUNK):
            size = min(_CHUNK, buffer.size - at)
            value = zlib.crc32(self._driver.read(rank, start + at, size), value)
        return value
