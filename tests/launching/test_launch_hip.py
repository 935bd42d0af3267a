"""Launches through the HIP driver: what a real C library receives, also while a graph is captured."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
import standin_hip
from code_objects import Kernel, code_object
from launch_kit import KEY, dispatch, plan
from standin_hip import FakeDevice, Record, StandIn

from mono_runtime.errors import ArgumentMismatch, DriverError
from mono_runtime.expressions import Arg, Const, Op
from mono_runtime.hip.driver import HipDriver, open_hip
from mono_runtime.launch_plan import LaunchPlan
from mono_runtime.launching import Launch

CODE = code_object(
    {
        "first": Kernel(((0, 8), (8, 4), (16, 8)), 24, max_threads=512),
        "second": Kernel(((0, 8),), 8, max_threads=512),
    }
)
ONE = plan(
    "addr:i64 n:i32 out:i64",
    dispatch([("addr", "i64", Arg("addr")), ("n", "i32", Arg("n")), ("out", "i64", Arg("out"))]),
)
TWO = plan(
    "addr:i64 n:i32 out:i64",
    dispatch(
        [("addr", "i64", Arg("addr")), ("n", "i32", Arg("n")), ("out", "i64", Arg("out"))],
        grid=(Op("mul", 32, (Arg("n"), Const(2))), Const(1), Const(1)),
    ),
    dispatch([("x", "i64", Op("add", 64, (Arg("addr"), Const(64))))], dynamic_lds=Const(128)),
)
ADDR, OUT = 0x7F12_3456_7000, 0x7F12_3456_8000


@pytest.fixture
def hip() -> Iterator[StandIn]:
    """The stand-in with two devices."""
    standin = standin_hip.load()
    standin.reset(FakeDevice(), FakeDevice(pci="0001:c5:00"))
    yield standin
    standin.reset()


@pytest.fixture
def driver(hip: StandIn) -> HipDriver:
    return open_hip()


def loaded(driver: HipDriver, of: LaunchPlan, device: int = 0) -> Launch:
    module = driver.load_module(device, CODE)
    symbols = ("first", "second")[: len(of.dispatches)]
    return Launch(KEY, of, device, driver, [driver.function(module, s) for s in symbols])


def packed(addr: int, n: int, out: int) -> bytes:
    return struct.pack("<qi4xq", addr, n, out)


@pytest.mark.parametrize("device", [0, 1])
def test_calls_reach_the_library_byte_for_byte(
    hip: StandIn, driver: HipDriver, device: int
) -> None:
    step = loaded(driver, ONE, device)
    stream = driver.create_stream(device)
    bound = step.bind(addr=ADDR, out=OUT)
    step(ADDR, 5, OUT, stream=stream)
    step(ADDR, 6, OUT, stream)
    bound(7, stream)
    bound(n=-1, stream=stream)
    record = Record(device, "first", (256, 1, 1), (512, 1, 1), 0, stream, b"", False)
    assert hip.launches() == [
        Record(**{**vars(record), "kernargs": packed(ADDR, n, OUT)}) for n in (5, 6, 7, -1)
    ]


def test_computed_dispatches_reach_the_library_in_order(hip: StandIn, driver: HipDriver) -> None:
    step = loaded(driver, TWO)
    stream = driver.create_stream(0)
    step(ADDR, 3, OUT, stream=stream)
    assert hip.launches() == [
        Record(0, "first", (6, 1, 1), (512, 1, 1), 0, stream, packed(ADDR, 3, OUT), False),
        Record(
            0, "second", (256, 1, 1), (512, 1, 1), 128, stream, struct.pack("<q", ADDR + 64), False
        ),
    ]


@pytest.mark.parametrize("of", [ONE, TWO], ids=["plain", "computed"])
def test_a_captured_call_keeps_its_arguments(
    hip: StandIn, driver: HipDriver, of: LaunchPlan
) -> None:
    step = loaded(driver, of)
    stream = driver.create_stream(0)
    bound = step.bind(addr=ADDR, out=OUT)
    hip.begin_capture(stream)
    step(ADDR, 5, OUT, stream=stream)
    bound(6, stream)
    graph = hip.end_capture(stream)
    assert graph
    step(1, 1, 1, stream=stream)
    bound(2, stream)
    hip.forget_launches()
    hip.replay(graph, stream)
    first = [r.kernargs for r in hip.launches() if r.symbol == "first"]
    assert first == [packed(ADDR, 5, OUT), packed(ADDR, 6, OUT)]
    hip.forget_launches()
    del bound
    step.close()
    hip.replay(graph, stream)
    assert [r.kernargs for r in hip.launches() if r.symbol == "first"] == first


def test_a_call_allocates_and_loads_nothing_on_the_device(hip: StandIn, driver: HipDriver) -> None:
    step = loaded(driver, ONE)
    stream = driver.create_stream(0)
    before = hip.log()
    hip.begin_capture(stream)
    step(ADDR, 5, OUT, stream=stream)
    step.bind(addr=ADDR, out=OUT)(6, stream)
    assert hip.end_capture(stream)
    assert [entry for entry in hip.log() if entry not in before and "Graph" not in entry[0]] == []


def test_a_wrong_call_never_reaches_the_library(hip: StandIn, driver: HipDriver) -> None:
    step = loaded(driver, ONE)
    stream = driver.create_stream(0)
    step(ADDR, 5, OUT, stream=stream)
    bound = step.bind(addr=ADDR)
    before = hip.calls("hipModuleLaunchKernel")
    for values in ((ADDR, 5), (ADDR, None, OUT), (ADDR, 2**32, OUT), (1.5, 5, OUT)):
        with pytest.raises(ArgumentMismatch):
            step(*values, stream=stream)
    with pytest.raises(ArgumentMismatch):
        bound(5, "out", stream)
    assert hip.calls("hipModuleLaunchKernel") == before


def test_the_default_stream_has_to_be_the_launchs_devices(hip: StandIn, driver: HipDriver) -> None:
    step = loaded(driver, ONE, device=1)
    with pytest.raises(ArgumentMismatch, match="current device 0, and the launch runs on device 1"):
        step(ADDR, 5, OUT)
    assert hip.launches() == []


def test_what_the_library_refuses_is_its_error_and_no_call(hip: StandIn, driver: HipDriver) -> None:
    step = loaded(driver, ONE)
    stream = driver.create_stream(0)
    hip.fail("hipModuleLaunchKernel", 719)
    for _ in range(2):
        with pytest.raises(DriverError, match="hipModuleLaunchKernel"):
            step(ADDR, 5, OUT, stream=stream)
    hip.fail("hipModuleLaunchKernel", 0)
    step(ADDR, 5, OUT, stream=stream)
    assert step.calls == 1
