"""Every call's failure becomes an error with HIP's number, name and text; none is forgotten or left behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from code_objects import Kernel, code_object
from standin_hip import StandIn

from mono_runtime.errors import DeviceMissing, DriverError, DriverMissing
from mono_runtime.hip.driver import HipDriver, open_hip

CODE = code_object({"k": Kernel()})
OCCUPANCY = "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor"


@dataclass
class Made:
    """Things of device 0 to call methods with."""

    driver: HipDriver
    module: int
    function: int
    stream: int
    event: int
    address: int


@pytest.fixture
def made(driver: HipDriver) -> Made:
    module = driver.load_module(0, CODE)
    event = driver.create_event(0)
    driver.record(0, event, 0)
    return Made(
        driver,
        module,
        driver.function(module, "k"),
        driver.create_stream(0),
        event,
        driver.allocate(0, 4096),
    )


_CALLS: list[tuple[str, Callable[[Made], object]]] = [
    ("hipGetDevice", lambda m: m.driver.current_device()),
    ("hipRuntimeGetVersion", lambda m: m.driver.name),
    ("hipGetDevicePropertiesR0600", lambda m: m.driver.device(0)),
    ("hipDeviceGetAttribute", lambda m: m.driver.device(0)),
    ("hipDeviceGetPCIBusId", lambda m: m.driver.device(0)),
    ("hipDeviceEnablePeerAccess", lambda m: m.driver.enable_peer_access(0, 1)),
    ("hipSetDevice", lambda m: m.driver.create_stream(1)),
    ("hipModuleLoadData", lambda m: m.driver.load_module(0, CODE)),
    ("hipModuleUnload", lambda m: m.driver.unload_module(0, m.module)),
    ("hipModuleGetFunction", lambda m: m.driver.function(m.module, "k")),
    (OCCUPANCY, lambda m: m.driver.workgroups_per_compute_unit(0, m.function, 64, 0)),
    (
        "hipModuleLaunchKernel",
        lambda m: m.driver.prepare(0, m.function, (1, 1, 1), (64, 1, 1), 0, bytearray())(0),
    ),
    ("hipStreamIsCapturing", lambda m: m.driver.is_capturing(0, m.stream)),
    ("hipStreamCreateWithFlags", lambda m: m.driver.create_stream(0)),
    ("hipStreamDestroy", lambda m: m.driver.destroy_stream(0, m.stream)),
    ("hipStreamSynchronize", lambda m: m.driver.synchronize(0, m.stream)),
    ("hipStreamSynchronize", lambda m: m.driver.fill(0, m.address, 0, 16)),
    ("hipDeviceSynchronize", lambda m: m.driver.synchronize(0)),
    ("hipEventCreateWithFlags", lambda m: m.driver.create_event(0)),
    ("hipEventDestroy", lambda m: m.driver.destroy_event(0, m.event)),
    ("hipEventRecord", lambda m: m.driver.record(0, m.event, m.stream)),
    ("hipEventQuery", lambda m: m.driver.is_done(0, m.event)),
    ("hipEventElapsedTime", lambda m: m.driver.elapsed(0, m.event, m.event)),
    ("hipMalloc", lambda m: m.driver.allocate(0, 16)),
    ("hipExtMallocWithFlags", lambda m: m.driver.allocate(0, 16, uncached=True)),
    ("hipFree", lambda m: m.driver.free(0, m.address)),
    ("hipMemset", lambda m: m.driver.fill(0, m.address, 0, 16)),
    ("hipMemcpy", lambda m: m.driver.write(0, m.address, b"x")),
    ("hipMemcpy", lambda m: m.driver.read(0, m.address, 1)),
    ("hipMemcpyAsync", lambda m: m.driver.read(0, m.address, 1, stream=m.stream)),
    ("hipStreamSynchronize", lambda m: m.driver.read(0, m.address, 1, stream=m.stream)),
    (
        "hipThreadExchangeStreamCaptureMode",
        lambda m: m.driver.read(0, m.address, 1, stream=m.stream),
    ),
    ("hipIpcGetMemHandle", lambda m: m.driver.export_memory(0, m.address)),
    ("hipIpcOpenMemHandle", lambda m: m.driver.import_memory(0, bytes(64))),
    ("hipIpcCloseMemHandle", lambda m: m.driver.release_memory(0, m.address)),
]


@pytest.mark.parametrize(
    ("function", "call"), _CALLS, ids=[f"{i}-{name}" for i, (name, _) in enumerate(_CALLS)]
)
def test_a_failing_call_is_an_error_with_hips_words(
    hip: StandIn, made: Made, function: str, call: Callable[[Made], object]
) -> None:
    hip.fail(function, 1)
    with pytest.raises(DriverError) as caught:
        call(made)
    error = caught.value
    assert (error.status, error.symbol) == (1, "hipErrorInvalidValue")
    assert error.what.startswith(f"{function} failed")
    assert error.what.endswith(": hipErrorInvalidValue (1): a parameter is not valid (stand-in)")
    assert error.where == str(hip.path)
    # torch would take it for the failure of its own next call.
    assert hip.c.hipGetLastError() == 0


def test_all_functions_that_the_driver_calls_are_failed_above(hip: StandIn) -> None:
    from mono_runtime.hip.api import _ARGUMENTS

    texts = {"hipGetErrorName", "hipGetErrorString", "hipGetLastError"}
    assert {name for name, _ in _CALLS} | texts | {"hipGetDeviceCount"} == set(_ARGUMENTS)


def test_a_failure_names_the_device(hip: StandIn, driver: HipDriver) -> None:
    hip.fail("hipMalloc", 2)
    with pytest.raises(DriverError, match="hipMalloc failed on device 1: hipErrorOutOfMemory"):
        driver.allocate(1, 16)


def test_a_number_that_hip_has_no_name_for(hip: StandIn, driver: HipDriver) -> None:
    hip.fail("hipMalloc", 4242)
    with pytest.raises(DriverError) as caught:
        driver.allocate(0, 16)
    assert (caught.value.status, caught.value.symbol) == (4242, "hipErrorUnknown")


@pytest.mark.parametrize(
    ("status", "kind"), [(100, DeviceMissing), (3, DriverMissing), (35, DriverMissing)]
)
def test_what_to_do_next_chooses_the_error(
    hip: StandIn, status: int, kind: type[DriverError]
) -> None:
    hip.fail("hipGetDeviceCount", status)
    with pytest.raises(DriverError) as caught:
        open_hip().device_count()
    assert type(caught.value) is kind
    assert caught.value.status == status
    assert caught.value.fix


def test_a_failure_while_the_current_device_is_restored_is_reported(
    hip: StandIn, driver: HipDriver
) -> None:
    hip.fail("hipSetDevice", 101, after=1)
    with pytest.raises(DeviceMissing, match="hipSetDevice failed on device 0"):
        driver.create_stream(1)
