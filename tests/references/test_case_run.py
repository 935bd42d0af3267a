"""Running a case: what is allocated and written, what a kernel gets, what is freed."""

import struct
from collections.abc import Callable

import pytest
import torch

from mono_build.emulator.cases.case import Address, Buffer, Call, Case, Memory, Part, Step, holding
from mono_build.emulator.cases.compare import Comparison, equal
from mono_build.emulator.cases.run import run
from mono_runtime.errors import ArgumentMismatch
from mono_runtime.expressions import Arg, Const
from mono_runtime.launch_plan import Argument, Dispatch, KernelArgument, LaunchPlan


class Devices:
    """Memory of two devices; a launch calls ``kernel(device, grid, block, kernargs)`` when it is waited for."""

    def __init__(self, kernel: Callable[..., None]) -> None:
        self.memory: dict[int, tuple[int, bytearray, bool]] = {}
        self.pending: list[Callable[[], None]] = []
        self.modules: set[int] = set()
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

    def read(self, device: int, address: int, size: int) -> bytes:
        memory, at = self._at(device, address)
        return bytes(memory[at : at + size])

    def load_module(self, device: int, code: bytes) -> int:
        assert code == b"object"
        self.modules.add(len(self.modules) + 1)
        return len(self.modules)

    def unload_module(self, device: int, module: int) -> None:
        self.modules.remove(module)

    def function(self, module: int, symbol: str) -> int:
        assert symbol == "kernel"
        return module

    def prepare(self, device, function, grid, block, dynamic_lds, kernargs):
        return lambda stream: self.pending.append(
            lambda: self.kernel(self, device, grid, block, bytes(kernargs))
        )

    def synchronize(self, device: int, stream: int | None = None) -> None:
        pending, self.pending = self.pending, []
        for launch in pending:
            launch()


PLAN = LaunchPlan(
    arguments=(Argument("out", "i64"), Argument("peer", "i64"), Argument("n", "i32")),
    stream="stream",
    persistent=False,
    dispatches=(
        Dispatch(
            symbol="kernel",
            code_object="sha256:" + "0" * 64,
            grid=(Arg("n"), Const(1), Const(1)),
            block=(Const(64), Const(1), Const(1)),
            dynamic_lds=Const(0),
            kernarg_size=24,
            arguments=(
                KernelArgument("out", "i64", 0, Arg("out")),
                KernelArgument("peer", "i64", 8, Arg("peer")),
                KernelArgument("n", "i32", 16, Arg("n")),
            ),
        ),
    ),
)


def _find(call: Call) -> tuple[LaunchPlan, dict[str, bytes]]:
    return PLAN, {"sha256:" + "0" * 64: b"object"}


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


def test_kernels_get_addresses_of_both_ranks_and_checks_read_what_they_left():
    seen = []

    def kernel(devices: Devices, device, grid, block, kernargs: bytes) -> None:
        out, peer, n = struct.unpack_from("<qqi", kernargs)
        value = struct.unpack("<i", devices.read(1 - device, peer, 4))[0]
        devices.write(device, out, struct.pack("<i", value * 10 + n))
        seen.append((device, grid, block))

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
    results = run(_case(check), devices, _find)
    assert [str(c) for r in results for c in r.comparisons if not c.passed] == []
    assert results[0].launches == ("k",)
    assert results[0].passed
    assert seen == [(0, (-3, 1, 1), (64, 1, 1)), (1, (-2, 1, 1), (64, 1, 1))]
    assert devices.memory == {}
    assert devices.modules == set()


def test_a_case_for_other_kernels_is_refused_before_anything_runs():
    devices = Devices(lambda *_: pytest.fail("launched"))
    with pytest.raises(ArgumentMismatch, match=r"arguments \['more'\]"):
        run(_case(lambda memory: [], more=1), devices, _find)
    assert devices.memory == {}


def test_memory_is_freed_when_a_launch_fails():
    def kernel(*_: object) -> None:
        raise RuntimeError("fault")

    devices = Devices(kernel)
    with pytest.raises(RuntimeError, match="fault"):
        run(_case(lambda memory: []), devices, _find)
    assert devices.memory == {}
    assert devices.modules == set()
