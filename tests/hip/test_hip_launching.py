"""Launches by the driver: what reaches HIP, byte for byte."""

from __future__ import annotations

import ctypes
import struct
import threading

import pytest
from code_objects import Kernel, code_object
from standin_hip import Record, StandIn

from mono_runtime.errors import DriverError, InvalidValue, Released, WrongDevice
from mono_runtime.hip.driver import HipDriver

KERNELS = {
    "step_0": Kernel(((0, 8), (8, 4), (16, 8)), 24, max_threads=512),
    "bare": Kernel(),
}
CODE = code_object(KERNELS)
GRID, BLOCK = (256, 1, 1), (512, 1, 1)


@pytest.fixture
def function(driver: HipDriver) -> int:
    return driver.function(driver.load_module(0, CODE), "step_0")


def test_a_launch_reaches_hip_byte_for_byte(hip: StandIn, driver: HipDriver, function: int) -> None:
    kernargs = bytearray(struct.pack("<QIIQ", 2**64 - 16, 2**32 - 1, 0, 0x7F00_0000_1000))
    stream = driver.create_stream(0)
    driver.prepare(0, function, (2**22, 65536, 2), (2, 8, 32), 1234, kernargs)(stream)
    assert hip.launches() == [
        Record(
            device=0,
            symbol="step_0",
            grid=(4194304, 65536, 2),
            block=(2, 8, 32),
            dynamic_lds=1234,
            stream=stream,
            kernargs=bytes.fromhex("f0ffffffffffffff ffffffff 00000000 00100000007f0000"),
            captured=False,
        )
    ]


@pytest.mark.parametrize("stream", [3, 2**31, 2**32 + 8, 2**63, 2**64 - 16])
def test_a_stream_of_any_size_arrives_whole(
    hip: StandIn, driver: HipDriver, function: int, stream: int
) -> None:
    hip.c.standin_any_stream(1)
    driver.prepare(0, function, GRID, BLOCK, 0, bytearray(24))(stream)
    assert [record.stream for record in hip.launches()] == [stream]


def test_dynamic_lds_of_any_size_arrives_whole(
    hip: StandIn, driver: HipDriver, function: int
) -> None:
    driver.prepare(0, function, GRID, BLOCK, 2**32 - 1, bytearray(24))(0)
    assert hip.launches()[0].dynamic_lds == 4294967295


@pytest.mark.parametrize(
    ("grid", "block", "lds", "what"),
    [
        ((2**32, 1, 1), BLOCK, 0, r"grid \(4294967296, 1, 1\)"),
        (GRID, (-1, 1, 1), 0, r"block \(-1, 1, 1\)"),
        (GRID, BLOCK, 2**32, r"dynamic LDS \(4294967296,\)"),
    ],
)
def test_what_does_not_fit_is_refused_before_hip(
    driver: HipDriver,
    function: int,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    lds: int,
    what: str,
) -> None:
    with pytest.raises(InvalidValue, match=f"{what} does not fit into 32 bits"):
        driver.prepare(0, function, grid, block, lds, bytearray(24))


@pytest.mark.parametrize("stream", [-1, 2**64])
def test_what_is_no_stream_is_refused_before_hip(
    hip: StandIn, driver: HipDriver, function: int, stream: int
) -> None:
    submit = driver.prepare(0, function, GRID, BLOCK, 0, bytearray(24))
    with pytest.raises(InvalidValue, match="is not a raw stream"):
        submit(stream)
    assert hip.launched() == 0


def test_each_call_launches_with_what_the_buffer_holds_then(
    hip: StandIn, driver: HipDriver, function: int
) -> None:
    kernargs = bytearray(24)
    submit = driver.prepare(0, function, GRID, BLOCK, 0, kernargs)
    for value in (1, 2):
        struct.pack_into("<Q", kernargs, 0, value)
        submit(0)
    assert [record.kernargs[0] for record in hip.launches()] == [1, 2]


def test_the_callable_keeps_its_buffer_alive(
    hip: StandIn, driver: HipDriver, function: int
) -> None:
    submit = driver.prepare(0, function, GRID, BLOCK, 0, bytearray(b"\xa5" * 24))
    rubbish = [bytearray(b"\0" * 24) for _ in range(1000)]
    submit(0)
    assert hip.launches()[0].kernargs == b"\xa5" * 24
    assert len(rubbish) == 1000


def test_more_streams_than_are_remembered(hip: StandIn, driver: HipDriver, function: int) -> None:
    hip.c.standin_any_stream(1)
    submit = driver.prepare(0, function, GRID, BLOCK, 0, bytearray(24))
    streams = [16 * n for n in range(1, 41)] * 2
    for stream in streams:
        submit(stream)
    assert [record.stream for record in hip.launches()] == streams


def test_a_kernel_without_arguments(hip: StandIn, driver: HipDriver) -> None:
    function = driver.function(driver.load_module(0, CODE), "bare")
    driver.prepare(0, function, GRID, (64, 1, 1), 0, bytearray())(0)
    assert hip.launches()[0].kernargs == b""


def test_arguments_by_pointers_arrive_as_the_same_bytes(
    hip: StandIn, driver: HipDriver, function: int
) -> None:
    """FlyDSL hands over pointers to the values, and the notes say where they go."""
    kernargs = struct.pack("<QIIQ", 2**63 + 5, 77, 0, 2**40)
    driver.prepare(0, function, GRID, BLOCK, 0, bytearray(kernargs))(0)
    values = (ctypes.c_uint64(2**63 + 5), ctypes.c_uint32(77), ctypes.c_uint64(2**40))
    pointers = (ctypes.c_void_p * 3)(*map(ctypes.addressof, values))
    status = hip.c.hipModuleLaunchKernel(
        ctypes.c_void_p(function), *GRID, *BLOCK, 0, None, pointers, None
    )
    assert status == 0
    first, second = hip.launches()
    assert first == second
    assert first.kernargs == kernargs


def test_a_launch_on_another_device_than_the_current_one(hip: StandIn, driver: HipDriver) -> None:
    module = driver.load_module(1, code_object(KERNELS, "gfx950"))
    submit = driver.prepare(1, driver.function(module, "step_0"), GRID, BLOCK, 0, bytearray(24))
    submit(0)
    submit(driver.create_stream(1))
    assert [record.device for record in hip.launches()] == [1, 1]
    assert driver.current_device() == 0


def test_a_failing_launch_says_so_on_every_call(
    hip: StandIn, driver: HipDriver, function: int
) -> None:
    submit = driver.prepare(0, function, GRID, BLOCK, 0, bytearray(24))
    hip.fail("hipModuleLaunchKernel", 719, after=1)
    submit(0)
    for _ in range(2):
        with pytest.raises(DriverError) as caught:
            submit(0)
        assert caught.value.what == (
            "hipModuleLaunchKernel failed on device 0: hipErrorLaunchFailure (719): "
            "the launch failed (stand-in)"
        )
    hip.fail("hipModuleLaunchKernel", 0)
    submit(0)
    assert hip.launched() == 2


def test_a_buffer_that_is_too_short_for_the_kernel_fails(driver: HipDriver, function: int) -> None:
    with pytest.raises(DriverError, match="hipErrorInvalidValue"):
        driver.prepare(0, function, GRID, BLOCK, 0, bytearray(20))(0)


def test_launches_from_many_threads_all_arrive(
    hip: StandIn, driver: HipDriver, function: int
) -> None:
    streams = [driver.create_stream(0) for _ in range(4)]
    submit = driver.prepare(0, function, GRID, BLOCK, 0, bytearray(24))

    def work(stream: int) -> None:
        for _ in range(100):
            submit(stream)

    threads = [threading.Thread(target=work, args=(stream,)) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = [record.stream for record in hip.launches()]
    assert sorted(seen) == sorted(streams * 100)


def test_a_captured_launch_keeps_the_kernargs_of_its_capture(
    hip: StandIn, driver: HipDriver, function: int
) -> None:
    stream = driver.create_stream(0)
    kernargs = bytearray(b"\x01" * 24)
    submit = driver.prepare(0, function, GRID, BLOCK, 0, kernargs)
    hip.begin_capture(stream)
    assert driver.is_capturing(0, stream)
    submit(stream)
    graph = hip.end_capture(stream)
    assert not driver.is_capturing(0, stream)
    kernargs[:] = b"\x02" * 24
    hip.replay(graph, stream)
    hip.destroy_graph(graph)
    assert [(record.captured, record.kernargs[:1]) for record in hip.launches()] == [
        (True, b"\x01"),
        (False, b"\x01"),
    ]


def test_the_default_stream_counts_as_captured_while_a_stream_that_waits_for_it_is(
    hip: StandIn, driver: HipDriver
) -> None:
    blocking = ctypes.c_uint64()
    hip.c.hipStreamCreate(ctypes.byref(blocking))
    assert not driver.is_capturing(0, 0)
    hip.begin_capture(blocking.value)
    assert driver.is_capturing(0, 0)
    assert hip.c.hipGetLastError() == 0
    hip.destroy_graph(hip.end_capture(blocking.value))
    assert not driver.is_capturing(0, 0)


def test_modules_are_used_on_their_own_device(hip: StandIn, driver: HipDriver) -> None:
    module = driver.load_module(1, code_object(KERNELS, "gfx950"))
    assert driver.function(module, "step_0")
    driver.unload_module(1, module)
    assert driver.current_device() == 0
    assert hip.all_alive() == {}
    assert hip.log() == [("hipModuleLoadData", module), ("hipModuleUnload", module)]


def test_an_unloaded_module_is_released(driver: HipDriver) -> None:
    module = driver.load_module(0, CODE)
    driver.unload_module(0, module)
    with pytest.raises(Released, match="is not loaded"):
        driver.function(module, "step_0")
    with pytest.raises(Released, match="is not loaded"):
        driver.unload_module(0, module)


@pytest.mark.parametrize(
    "code",
    [
        code_object(KERNELS, "gfx950"),
        code_object(KERNELS, "gfx942", xnack=True),
        code_object(KERNELS, "gfx942", sramecc=False),
    ],
    ids=["other architecture", "xnack on", "sramecc off"],
)
def test_code_for_another_device_is_refused(driver: HipDriver, code: bytes) -> None:
    with pytest.raises(WrongDevice) as caught:
        driver.load_module(0, code)
    assert caught.value.what == (
        "hipModuleLoadData failed on device 0: hipErrorNoBinaryForGpu (209): "
        "code for another device (stand-in)"
    )


@pytest.mark.parametrize(
    "code",
    [CODE, code_object(KERNELS, xnack=False, sramecc=True)],
    ids=["any features", "the device's"],
)
def test_code_for_this_device_loads(driver: HipDriver, code: bytes) -> None:
    assert driver.load_module(0, code)


def test_what_is_no_code_object_is_a_driver_error(driver: HipDriver) -> None:
    with pytest.raises(DriverError, match="hipErrorInvalidImage"):
        driver.load_module(0, b"not an ELF" + bytes(100))


def test_a_kernel_that_the_module_lacks(driver: HipDriver) -> None:
    module = driver.load_module(0, CODE)
    with pytest.raises(DriverError) as caught:
        driver.function(module, "step_1")
    assert (caught.value.status, caught.value.symbol) == (500, "hipErrorNotFound")


def test_occupancy_is_hips(hip: StandIn, driver: HipDriver, function: int) -> None:
    # 64 registers and 8 waves a workgroup: 8 waves on each of 4 SIMDs are 4 workgroups.
    assert driver.workgroups_per_compute_unit(0, function, 512, 0) == 4
    # 40 KiB of 64.
    assert driver.workgroups_per_compute_unit(0, function, 512, 40960) == 1
    assert driver.workgroups_per_compute_unit(0, function, 512, 65537) == 0
    hip.fail("hipModuleOccupancyMaxActiveBlocksPerMultiprocessor", 801)
    assert driver.workgroups_per_compute_unit(0, function, 512, 0) is None
    assert hip.c.hipGetLastError() == 0
