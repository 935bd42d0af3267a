"""What the driver says of devices, and whose current device it leaves alone."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from standin_hip import FakeDevice, StandIn

from mono_runtime.arch import Architecture
from mono_runtime.driver import Device, Driver
from mono_runtime.errors import DeviceMissing, DriverError, DriverMissing
from mono_runtime.hip.driver import HipDriver, open_hip


def test_a_device_is_described_in_full(driver: HipDriver) -> None:
    assert driver.device_count() == 2
    assert driver.device(1) == Device(
        ordinal=1,
        name="AMD Instinct MI355X",
        architecture=Architecture("gfx950", (("sramecc", True), ("xnack", False))),
        compute_units=256,
        memory=288 << 30,
        bus_id="0001:c5:00.0",
        partition=None,
        restriction=None,
    )


def test_the_driver_is_what_the_runtime_asks_for(driver: HipDriver) -> None:
    accepted: Driver = driver
    assert accepted.name == f"HIP 7.0 ({driver.library.path})"


def test_an_architecture_that_no_store_has_is_described_too(hip: StandIn) -> None:
    hip.reset(FakeDevice("gfx1100"))
    assert open_hip().device(0).architecture == Architecture("gfx1100")


def test_an_architecture_that_cannot_be_read_is_an_error(hip: StandIn) -> None:
    hip.reset(FakeDevice("gfx942:sramecc"))
    with pytest.raises(DriverError, match="'gfx942:sramecc', which cannot be read"):
        open_hip().device(0)


@pytest.mark.parametrize(("version", "name"), [(60_443_484, "HIP 6.4"), (70_051_831, "HIP 7.0")])
def test_versions_6_and_7_describe_devices(hip: StandIn, version: int, name: str) -> None:
    hip.reset(version=version)
    driver = open_hip()
    assert driver.name.startswith(f"{name} (")
    assert driver.device(0).compute_units == 304


@pytest.mark.parametrize("version", [50_221_153, 80_000_000])
def test_another_version_opens_and_is_refused_when_a_device_is_described(
    hip: StandIn, version: int
) -> None:
    hip.reset(version=version)
    driver = open_hip()
    assert driver.device_count() == 1
    with pytest.raises(DriverMissing) as caught:
        driver.device(0)
    assert caught.value.what.startswith(f"HIP {version // 10_000_000}.")
    assert caught.value.fix == "use HIP 6 or 7"


def test_no_device_names_hips_error(hip: StandIn) -> None:
    hip.reset(none=True)
    with pytest.raises(DeviceMissing) as caught:
        open_hip().device_count()
    assert caught.value.what == (
        "hipGetDeviceCount failed: hipErrorNoDevice (100): no device here (stand-in)"
    )
    assert (caught.value.status, caught.value.symbol) == (100, "hipErrorNoDevice")
    assert caught.value.fix


@pytest.mark.parametrize("ordinal", [2, -1])
def test_no_device_of_this_number(driver: HipDriver, ordinal: int) -> None:
    with pytest.raises(DeviceMissing, match=f"there is no device {ordinal}"):
        driver.device(ordinal)


def test_hidden_devices_are_named_as_the_reason(
    hip: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    hip.reset(none=True)
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "7")
    with pytest.raises(DeviceMissing) as caught:
        open_hip().device_count()
    assert caught.value.fix is not None
    assert caught.value.fix.startswith("ROCR_VISIBLE_DEVICES=7 ")


def _sysfs(root: Path, bus_id: str, mode: str) -> Path:
    directory = root / "bus/pci/devices" / bus_id
    directory.mkdir(parents=True)
    (directory / "current_compute_partition").write_text(f"{mode}\n")
    return root


def test_the_partition_mode_is_the_kernels(hip: StandIn, tmp_path: Path) -> None:
    driver = HipDriver(sysfs=_sysfs(tmp_path, "0001:c5:00.0", "CPX"))
    assert driver.device(1).partition == "CPX"
    assert driver.device(0).partition is None


@pytest.mark.parametrize("name", ["HSA_CU_MASK", "ROC_GLOBAL_CU_MASK"])
def test_a_mask_of_compute_units_is_a_restriction(hip: StandIn, name: str) -> None:
    driver = HipDriver(environ={name: "0:0-15"})
    assert driver.device(0).restriction == f"{name}=0:0-15 may hide compute units from launches"


def test_the_callers_current_device_is_restored(hip: StandIn, driver: HipDriver) -> None:
    hip.c.hipSetDevice(1)
    stream = driver.create_stream(0)
    address = driver.allocate(0, 4096)
    event = driver.create_event(0)
    driver.record(0, event, stream)
    assert driver.current_device() == 1
    assert hip.memory_device(address) == 0


def test_the_current_device_is_restored_after_a_failure(hip: StandIn, driver: HipDriver) -> None:
    hip.c.hipSetDevice(1)
    hip.fail("hipMalloc", 2)
    with pytest.raises(DriverError):
        driver.allocate(0, 4096)
    assert driver.current_device() == 1


def test_the_device_is_not_switched_when_it_is_current(hip: StandIn, driver: HipDriver) -> None:
    driver.allocate(0, 4096)
    driver.synchronize(0)
    assert hip.calls("hipSetDevice") == 0


def test_each_thread_has_a_current_device_of_its_own(hip: StandIn, driver: HipDriver) -> None:
    seen = []

    def other() -> None:
        hip.c.hipSetDevice(1)
        driver.allocate(0, 4096)
        seen.append(driver.current_device())

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [1]
    assert driver.current_device() == 0


def test_peers_are_enabled_in_one_direction_and_twice_does_no_harm(
    hip: StandIn, driver: HipDriver
) -> None:
    driver.enable_peer_access(0, 1)
    driver.enable_peer_access(0, 1)
    driver.enable_peer_access(0, 0)
    assert hip.peer(0, 1)
    assert not hip.peer(1, 0)
    assert hip.c.hipGetLastError() == 0


def test_a_peer_out_of_reach_is_an_error(hip: StandIn, driver: HipDriver) -> None:
    hip.c.standin_peers(0)
    with pytest.raises(DriverError) as caught:
        driver.enable_peer_access(0, 1)
    assert caught.value.what.startswith(
        "hipDeviceEnablePeerAccess failed on device 0: hipErrorInvalidDevice (101)"
    )
    assert not isinstance(caught.value, DeviceMissing)
