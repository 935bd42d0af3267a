"""Running a case: what is allocated and written, what a launch is called with, what is freed and restored."""

from collections.abc import Callable

import pytest
import torch

from mono_build.emulator.cases.case import Address, Buffer, Call, Case, Memory, Part, Step, holding
from mono_build.emulator.cases.compare import Comparison, equal
from mono_build.emulator.cases.memory import CaseMemory
from mono_build.emulator.cases.run import CaseRunner, StepResult
from mono_runtime.launch_key import LaunchKey


class Devices:
    """Memory of two devices; a launch calls ``kernel(devices, device, **arguments)`` when it is waited for."""

    def __init__(self, kernel: Callable[..., None]) -> None:
        self.memory: dict[int, tuple[int, bytearray, bool]] = {}
        self.pending: list[Callable[[], None]] = []
        self.streams: set[tuple[int, int]] = set()
        self.peers: set[tuple[int, int]] = set()
        self.writes = 0
        self.kernel = kernel

    def allocate(self, device: int, size: int, *, uncached: bool = False) -> int:
        address = 0x1000 * (len(self.memory) + 1) * (device + 1) + 0x5_0000_0000
        self.memory[address] = (device, bytearray(b"\xee" * size), uncached)
        return address

    def _at(self, device: int, address: int) -> tuple[bytearray, int]:
        for start, (owner, data, _) in self.memory.items():
            if owner == device and start <= address < start + len(data):
                return data, address - start
        raise AssertionError(hex(address))

    def free(self, device: int, address: int) -> None:
        assert self.memory.pop(address)[0] == device

    def fill(self, device: int, address: int, value: int, size: int) -> None:
        self.write(device, address, bytes([value]) * size)

    def write(self, device: int, address: int, data: bytes) -> None:
        memory, at = self._at(device, address)
        memory[at : at + len(data)] = data
        self.writes += 1

    def read(self, device: int, address: int, size: int, *, stream: int | None = None) -> bytes:
        memory, at = self._at(device, address)
        return bytes(memory[at : at + size])

    def enable_peer_access(self, device: int, peer: int) -> None:
        self.peers.add((device, peer))

    def create_stream(self, device: int) -> int:
        self.streams.add((device, 70 + device))
        return 70 + device

    def destroy_stream(self, device: int, stream: int) -> None:
        self.streams.remove((device, stream))

    def synchronize(self, device: int, stream: int | None = None) -> None:
        pending, self.pending = self.pending, []
        for launch in pending:
            launch()


class Store:
    """An opened store of one launch, whose loader knows the device that it is for."""

    def __init__(self, driver: Devices) -> None:
        self.driver = driver
        self.loaded: list[tuple[int, LaunchKey]] = []

    def on(self, device: int) -> "_Loader":
        return _Loader(self, device)


class _Loader:
    def __init__(self, store: Store, device: int) -> None:
        self.store, self.device = store, device

    def load(self, key: LaunchKey) -> Callable[..., None]:
        self.store.loaded.append((self.device, key))
        devices = self.store.driver

        def launch(*, stream: int, **arguments: int) -> None:
            assert (self.device, stream) in devices.streams
            devices.pending.append(lambda: devices.kernel(devices, self.device, **arguments))

        return launch


def run(case: Case, devices: Devices) -> list[StepResult]:
    memory = CaseMemory(devices, case)
    try:
        runner = CaseRunner(case, Store(devices))
        try:
            return runner.run(memory)
        finally:
            runner.close()
    finally:
        memory.close()


def _case(check: Callable[[Memory], list[Comparison]], **wrong: int) -> Case:
    def buffers(rank: int) -> dict[str, Buffer]:
        return {
            "out": Buffer(8, fill=0),
            "given": holding(torch.tensor([5 + rank], dtype=torch.int32)),
            "sparse": Buffer(16, (Part(4, lambda: torch.tensor([7], dtype=torch.int16)),)),
            "table": Buffer(16, table=(Address("given", rank=0), Address("given", rank=1))),
        }

    calls = tuple(
        Call(
            rank,
            "k",
            {},
            {
                "out": Address("out", 4),
                "peer": Address("given", rank=1 - rank),
                "n": -3 + rank,
                **wrong,
            },
        )
        for rank in range(2)
    )
    return Case("test", "family", "gfx950", 1, (buffers(0), buffers(1)), (Step(calls, check),))


def _int(value: int) -> bytes:
    return value.to_bytes(4, "little", signed=True)


def test_launches_get_addresses_of_both_ranks_and_checks_read_what_they_left():
    seen = []

    def kernel(devices: Devices, device: int, *, out: int, peer: int, n: int) -> None:
        value = int.from_bytes(devices.read(1 - device, peer, 4), "little")
        devices.write(device, out, _int(value * 10 + n))
        seen.append((device, n))

    def check(memory: Memory) -> list[Comparison]:
        got = [memory.read(r, "out", 0, 8).view(torch.int32) for r in range(2)]
        sparse = memory.read(1, "sparse", 0, 8).tolist()
        first = memory.read(0, "table", 0, 16).view(torch.int64)
        second = memory.read(1, "table", 0, 16).view(torch.int64)
        return [
            equal("rank 0", got[0], torch.tensor([0, 57])),
            equal("rank 1", got[1], torch.tensor([0, 48])),
            equal(
                "only the part is written",
                torch.tensor(sparse),
                torch.tensor([0xEE] * 4 + [7, 0, 0xEE, 0xEE]),
            ),
            equal("tables agree", first, second),
        ]

    devices = Devices(kernel)
    results = run(_case(check), devices)
    assert [str(c) for r in results for c in r.comparisons if not c.passed] == []
    assert results[0].launches == (LaunchKey.of("family", "k", "gfx950", {}),)
    assert results[0].passed
    assert seen == [(0, -3), (1, -2)]
    assert devices.peers == {(0, 1), (1, 0)}
    assert (devices.memory, devices.streams) == ({}, set())


def test_memory_is_freed_when_a_launch_fails():
    def kernel(*_: object, **__: object) -> None:
        raise RuntimeError("fault")

    devices = Devices(kernel)
    with pytest.raises(RuntimeError, match="fault"):
        run(_case(lambda memory: []), devices)
    assert (devices.memory, devices.streams) == ({}, set())


def test_restoring_writes_what_changed_and_nothing_else():
    devices = Devices(lambda *_: None)
    memory = CaseMemory(devices, _case(lambda memory: []))
    memory.remember()
    before = {a: bytes(data) for a, (_, data, _) in devices.memory.items()}
    out, given = (memory.address(1, Address(name)) for name in ("out", "given"))
    sparse = memory.address(0, Address("sparse"))
    devices.write(1, out + 4, b"\x01\x02")
    devices.write(1, given, b"\x09")
    devices.write(0, sparse + 4, b"\x55\x55")
    devices.write(0, sparse, b"\x66")
    written = devices.writes
    memory.restore()
    after = {a: bytes(data) for a, (_, data, _) in devices.memory.items()}
    # What has no content to begin with is zero, so that an earlier run's output never passes for a later one's.
    before[sparse] = b"\0" * 4 + b"\x07\0" + b"\0" * 10
    assert after == before
    # A fill each, and the two parts.
    assert devices.writes - written == 5


def test_what_checks_read_is_noted_by_place_and_content():
    devices = Devices(lambda *_: None)
    memory = CaseMemory(devices, _case(lambda memory: []))
    memory.read(1, "out", 0, 4)
    first = memory.take_reads()
    assert list(first) == ["out[0:4] of rank 1"]
    assert memory.take_reads() == {}
    devices.write(1, memory.address(1, Address("out")), b"\x01")
    memory.read(1, "out", 0, 4)
    second = memory.take_reads()
    assert list(second) == list(first)
    assert second != first
