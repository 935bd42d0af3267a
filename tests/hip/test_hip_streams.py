"""Streams, events and memory by the driver."""

from __future__ import annotations

import threading
from ctypes import c_size_t, c_void_p

import pytest
from standin_hip import FakeDevice, StandIn

from mono_runtime.errors import DriverError, InvalidValue
from mono_runtime.hip.driver import HipDriver, open_hip


def test_a_stream_does_not_wait_for_the_default_one(hip: StandIn, driver: HipDriver) -> None:
    stream = driver.create_stream(1)
    assert hip.stream_flags(stream) == 1  # hipStreamNonBlocking
    driver.destroy_stream(1, stream)
    assert hip.all_alive() == {}


def test_elapsed_is_seconds(hip: StandIn, driver: HipDriver) -> None:
    start, end = driver.create_event(0), driver.create_event(0)
    hip.clock(1000.0)
    driver.record(0, start, 0)
    hip.clock(1002.5)
    driver.record(0, end, 0)
    assert driver.elapsed(0, start, end) == 0.0025
    driver.destroy_event(0, start)
    driver.destroy_event(0, end)
    assert hip.all_alive() == {}


def test_an_event_is_done_when_the_work_before_it_is(hip: StandIn, driver: HipDriver) -> None:
    event = driver.create_event(0)
    hip.hold()
    driver.record(0, event, 0)
    assert driver.is_done(0, event) is False
    assert hip.c.hipGetLastError() == 0
    hip.release()
    assert driver.is_done(0, event) is True


@pytest.mark.parametrize("whole_device", [False, True])
def test_synchronize_waits_for_the_work(
    hip: StandIn, driver: HipDriver, whole_device: bool
) -> None:
    stream = driver.create_stream(0)
    address = driver.allocate(0, 4096)
    hip.hold()
    assert hip.c.hipMemsetD32Async(c_void_p(address), 1, c_size_t(4), c_void_p(stream)) == 0
    finished = threading.Event()

    def wait() -> None:
        driver.synchronize(0, None if whole_device else stream)
        finished.set()

    thread = threading.Thread(target=wait)
    thread.start()
    waiting = not finished.wait(0.05)
    hip.release()
    thread.join(10)
    assert waiting
    assert finished.is_set()


def test_waiting_inside_a_capture_says_what_to_do(hip: StandIn, driver: HipDriver) -> None:
    stream = driver.create_stream(0)
    hip.begin_capture(stream)
    with pytest.raises(DriverError) as caught:
        driver.synchronize(0, stream)
    assert caught.value.symbol == "hipErrorStreamCaptureUnsupported"
    assert caught.value.fix == "do this before the graph capture begins"
    assert hip.end_capture(stream) == 0


def test_memory_is_written_filled_and_read(hip: StandIn, driver: HipDriver) -> None:
    address = driver.allocate(1, 10_000)
    driver.fill(1, address, 0xA5, 10_000)
    driver.write(1, address + 16, bytes(range(256)))
    assert driver.read(1, address, 10_000) == b"\xa5" * 16 + bytes(range(256)) + b"\xa5" * 9728
    assert hip.memory_device(address) == 1
    driver.free(1, address)
    assert hip.all_alive() == {}


def test_uncached_memory_has_flag_3(hip: StandIn, driver: HipDriver) -> None:
    uncached = driver.allocate(0, 4096, uncached=True)
    plain = driver.allocate(0, 4096)
    assert hip.memory_flags(uncached) == 3
    assert hip.memory_flags(plain) == 0


@pytest.mark.parametrize("size", [0, -1])
def test_no_memory_cannot_be_allocated(driver: HipDriver, size: int) -> None:
    with pytest.raises(InvalidValue, match=f"cannot allocate {size} bytes"):
        driver.allocate(0, size)


def test_a_fill_value_is_a_byte(driver: HipDriver) -> None:
    with pytest.raises(InvalidValue, match="256 is not a byte"):
        driver.fill(0, 4096, 256, 1)


def test_a_device_that_is_full_says_so(hip: StandIn) -> None:
    hip.reset(FakeDevice(memory=8192))
    driver = open_hip()
    first = driver.allocate(0, 8192)
    with pytest.raises(DriverError) as caught:
        driver.allocate(0, 1)
    assert caught.value.symbol == "hipErrorOutOfMemory"
    driver.free(0, first)
    driver.free(0, driver.allocate(0, 8192))


@pytest.mark.parametrize("offset", [0, 1])
def test_reading_beyond_an_allocation_fails(driver: HipDriver, offset: int) -> None:
    address = driver.allocate(0, 4096)
    with pytest.raises(DriverError, match="hipErrorInvalidValue"):
        driver.read(0, address + offset, 4097)


def test_freeing_twice_fails(driver: HipDriver) -> None:
    address = driver.allocate(0, 4096)
    driver.free(0, address)
    with pytest.raises(DriverError, match="hipFree failed on device 0: hipErrorInvalidValue"):
        driver.free(0, address)


def test_reading_on_a_stream_does_not_wait_for_others(hip: StandIn, driver: HipDriver) -> None:
    mine, spinning = driver.create_stream(0), driver.create_stream(0)
    address = driver.allocate(0, 4096)
    driver.write(0, address, b"as it is")
    hip.hold_stream(0)
    hip.hold_stream(spinning)
    read: list[str] = []

    def reading(how: str, stream: int | None) -> threading.Thread:
        def run() -> None:
            if driver.read(0, address, 8, stream=stream) == b"as it is":
                read.append(how)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    reading("on a stream", mine).join(10)
    waits = reading("after the default stream", None)
    waits.join(0.05)
    before = list(read)
    hip.release_stream(0)
    hip.release_stream(spinning)
    waits.join(10)
    assert before == ["on a stream"]
    assert read == ["on a stream", "after the default stream"]


def test_reading_on_a_stream_leaves_the_captures_of_other_threads_alone(
    hip: StandIn, driver: HipDriver
) -> None:
    mine, captured = driver.create_stream(0), driver.create_stream(0)
    address = driver.allocate(0, 4096)
    driver.write(0, address, b"as it is")
    hip.begin_capture(captured)
    read: list[bytes] = []
    thread = threading.Thread(target=lambda: read.append(driver.read(0, address, 8, stream=mine)))
    thread.start()
    thread.join(10)
    graph = hip.end_capture(captured)
    assert read == [b"as it is"]
    assert graph
    hip.destroy_graph(graph)


def test_another_thread_is_forbidden_what_a_global_capture_forbids(
    hip: StandIn, driver: HipDriver
) -> None:
    captured = driver.create_stream(0)
    address = driver.allocate(0, 4096)
    hip.begin_capture(captured)
    caught: list[str | None] = []

    def read() -> None:
        with pytest.raises(DriverError) as error:
            driver.read(0, address, 8)
        caught.append(error.value.symbol)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join(10)
    assert caught == ["hipErrorStreamCaptureUnsupported"]
    assert hip.end_capture(captured) == 0  # spoilt
