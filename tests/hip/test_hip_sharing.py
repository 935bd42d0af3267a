"""Device memory that two real processes share."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
import standin_hip
from standin_hip import StandIn

from mono_runtime.errors import DriverError, InvalidValue
from mono_runtime.hip.driver import HipDriver, open_hip

# Exports 8192 bytes, then does what it is told until its input ends.
_OWNER = """
import sys
from mono_runtime.hip.driver import open_hip
driver = open_hip()
address = driver.allocate(0, 8192, uncached=True)
driver.fill(0, address, 0x11, 8192)
print(driver.export_memory(0, address + 4096).hex(), flush=True)
for line in sys.stdin:
    if line.strip() == "read":
        print(driver.read(0, address + 4096, 4).hex(), flush=True)
    else:
        driver.free(0, address)
        print("freed", flush=True)
"""


class Owner:
    """A process that owns shared memory."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _OWNER],
            env=standin_hip.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.handle = bytes.fromhex(self.read())

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, what: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        return self.read()

    def end(self) -> None:
        self.process.communicate()


@pytest.fixture
def owner() -> Iterator[Owner]:
    owner = Owner()
    yield owner
    owner.end()


def test_two_processes_see_each_others_bytes(hip: StandIn, driver: HipDriver, owner: Owner) -> None:
    address = driver.import_memory(1, owner.handle)
    assert hip.memory_device(address) == 1
    assert driver.read(1, address, 4) == b"\x11" * 4
    driver.write(1, address, b"\x01\x02\x03\x04")
    assert owner.ask("read") == "01020304"
    driver.release_memory(1, address)
    assert hip.all_alive() == {}


def test_a_handle_of_memory_that_was_freed_does_not_open(driver: HipDriver, owner: Owner) -> None:
    assert owner.ask("free") == "freed"
    with pytest.raises(DriverError, match="hipIpcOpenMemHandle failed on device 0"):
        driver.import_memory(0, owner.handle)


def test_a_handle_of_a_process_that_ended_does_not_open(driver: HipDriver, owner: Owner) -> None:
    owner.end()
    with pytest.raises(DriverError) as caught:
        driver.import_memory(0, owner.handle)
    assert caught.value.symbol == "hipErrorInvalidDevicePointer"
    assert caught.value.fix == "the exporting process must be alive, and must not be this one"


def test_a_process_cannot_import_its_own_memory(driver: HipDriver) -> None:
    handle = driver.export_memory(0, driver.allocate(0, 4096))
    assert len(handle) == 64
    with pytest.raises(DriverError, match="hipErrorInvalidContext"):
        driver.import_memory(0, handle)


def test_memory_that_is_not_whole_pages_cannot_be_exported(driver: HipDriver) -> None:
    with pytest.raises(DriverError) as caught:
        driver.export_memory(0, driver.allocate(0, 4097))
    assert caught.value.fix == "only whole allocations of 4096-byte pages can be shared"


def test_a_handle_of_another_length_is_refused_before_hip(hip: StandIn) -> None:
    with pytest.raises(InvalidValue, match="has 64 bytes, and this has 63"):
        open_hip().import_memory(0, bytes(63))
    assert hip.calls("hipIpcOpenMemHandle") == 0
