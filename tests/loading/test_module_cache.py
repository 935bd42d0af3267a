"""Modules: loaded once a device whoever asks, kept as long as they are needed, released in order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from elf_kit import minimal_elf
from fake_driver import FakeDriver, device

from mono_runtime.counters import Counters
from mono_runtime.errors import (
    DeviceMissing,
    DriverError,
    Released,
    StoreDamaged,
    WrongDevice,
)
from mono_runtime.modules import ModuleCache

A, B, C = ("sha256:" + letter * 64 for letter in "abc")


def code(payload: bytes = b"") -> bytes:
    return minimal_elf("gfx950", payload=payload)


def test_a_digest_is_read_and_loaded_once_and_then_shared() -> None:
    driver, reads = FakeDriver(), []

    def read() -> bytes:
        reads.append(1)
        return code(b"12345678")

    cache = ModuleCache(driver, 0)
    first, second = cache.acquire(A, read), cache.acquire(A, read)
    assert (first.shared, second.shared) == (False, True)
    assert first.handle == second.handle == cache.get(A, read)
    assert len(reads) == 1
    assert driver.names("load_module") == [(0, code(b"12345678"))]
    assert (cache.loads, cache.shares, cache.size) == (1, 2, 72)


def test_two_devices_load_the_same_code_each() -> None:
    driver = FakeDriver((device(), device(ordinal=1)))
    for ordinal in (0, 1):
        ModuleCache(driver, ordinal).get(A, code)
    assert driver.names("load_module") == [(0, code()), (1, code())]


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(DeviceMissing, match="no device 5"):
        ModuleCache(FakeDriver(), 5)


def test_eight_threads_that_ask_at_once_load_once() -> None:
    driver, started, go = FakeDriver(), threading.Event(), threading.Event()

    def wait(*arguments: object) -> None:
        started.set()
        assert go.wait(30)

    driver.before["load_module"] = wait
    cache = ModuleCache(driver, 0)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(cache.get, A, code)
        assert started.wait(30)
        others = [pool.submit(cache.get, A, code) for _ in range(7)]
        assert not any(f.done() for f in others)
        go.set()
        handles = {f.result(30) for f in [first, *others]}
    assert len(handles) == 1
    assert len(driver.names("load_module")) == 1
    assert (cache.loads, cache.shares) == (1, 7)


def test_different_digests_load_side_by_side() -> None:
    driver, both = FakeDriver(), threading.Barrier(2)
    driver.before["load_module"] = lambda *ignored: both.wait(30)
    cache = ModuleCache(driver, 0)
    with ThreadPoolExecutor(2) as pool:
        handles = list(pool.map(lambda d: cache.get(d, code), [A, B]))
    assert len(set(handles)) == 2


def asked_while_loading(failure: BaseException, others: int) -> tuple[FakeDriver, list[object]]:
    """What each of ``1 + others`` threads gets when all of them have asked before the first load fails."""
    driver = FakeDriver()
    driver.fail("load_module", failure, times=1)
    cache, waiters = ModuleCache(driver, 0), threading.Semaphore(0)

    class Told(threading.Event):
        """Says when somebody is about to wait for it."""

        def wait(self, timeout: float | None = None) -> bool:
            waiters.release()
            return super().wait(timeout)

    def read_when_all_wait() -> bytes:
        cache._entries[A].done.__class__ = Told
        reading.set()
        assert all(waiters.acquire(timeout=30) for _ in range(others))
        return code()

    reading = threading.Event()
    with ThreadPoolExecutor(1 + others) as pool:
        futures = [pool.submit(cache.get, A, read_when_all_wait)]
        assert reading.wait(30)
        futures += [pool.submit(cache.get, A, code) for _ in range(others)]
        return driver, [f.exception(30) or f.result() for f in futures]


def test_a_load_that_fails_raises_for_all_who_wait() -> None:
    error = DriverError("out of memory")
    driver, outcomes = asked_while_loading(error, others=3)
    assert outcomes == [error] * 4
    assert driver.modules == {}


def test_an_interrupted_load_is_taken_over_by_who_waits() -> None:
    driver, outcomes = asked_while_loading(KeyboardInterrupt(), others=3)
    assert isinstance(outcomes[0], KeyboardInterrupt)
    assert outcomes[1:] == [*driver.modules] * 3


def test_a_load_that_fails_can_be_tried_again() -> None:
    driver = FakeDriver()
    driver.fail("load_module", DriverError("out of memory"), times=1)
    cache = ModuleCache(driver, 0)
    with pytest.raises(DriverError, match="out of memory"):
        cache.get(A, code)
    assert (cache.loads, cache.size) == (0, 0)
    assert cache.get(A, code) in driver.modules


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (b"\x7fELF but nothing more", StoreDamaged),
        (minimal_elf("gfx942"), WrongDevice),
        (minimal_elf("gfx950", xnack=True), WrongDevice),
    ],
)
def test_code_that_the_device_cannot_run_never_reaches_the_driver(
    bad: bytes, error: type[Exception]
) -> None:
    driver = FakeDriver()
    with pytest.raises(error) as caught:
        ModuleCache(driver, 0).get(A, lambda: bad)
    assert A in str(caught.value)
    assert driver.calls == []


def test_functions_are_looked_up_once_and_load_what_they_need() -> None:
    driver = FakeDriver()
    cache = ModuleCache(driver, 0)
    first = cache.function(A, "k", code)
    assert cache.function(A, "k", code) == first
    assert cache.function(A, "k") == first
    assert cache.function(A, "other") != first
    module = cache.get(A, code)
    assert driver.names("function") == [(module, "k"), (module, "other")]


def test_a_function_of_a_module_that_is_not_loaded_is_an_error() -> None:
    with pytest.raises(Released, match="not loaded"):
        ModuleCache(FakeDriver(), 0).function(A, "k")


def test_the_bytes_live_as_long_as_the_module() -> None:
    class Bytes(bytes):
        """Bytes whose end can be seen."""

        def __del__(self) -> None:
            gone.append(1)

    gone: list[int] = []
    driver = FakeDriver()
    cache = ModuleCache(driver, 0)
    cache.get(A, lambda: Bytes(code()))
    # The driver and its record forget them, as HIP does.
    driver.calls.clear()
    driver.modules = dict.fromkeys(driver.modules, b"")
    assert gone == []
    cache.close()
    assert gone == [1]


def test_closing_unloads_the_last_loaded_first_and_once() -> None:
    driver = FakeDriver()
    cache = ModuleCache(driver, 0)
    handles = [cache.get(d, code) for d in (A, B, C)]
    cache.close()
    cache.close()
    assert driver.names("unload_module") == [(0, h) for h in reversed(handles)]
    assert cache.loads == 0


def test_a_module_that_does_not_unload_does_not_keep_the_others() -> None:
    driver = FakeDriver()
    cache = ModuleCache(driver, 0)
    first, second, third = (cache.get(d, code) for d in (A, B, C))
    refused = DriverError("busy")
    refused.status, refused.symbol = 1, "hipErrorInvalidValue"

    def refuse(_: int, module: int) -> None:
        if module == second:
            raise refused

    driver.before["unload_module"] = refuse
    with pytest.raises(DriverError) as caught:
        cache.close()
    assert caught.value.what == f"1 modules could not be unloaded: busy (code object {B})"
    assert (caught.value.status, caught.value.symbol) == (1, "hipErrorInvalidValue")
    assert driver.names("unload_module") == [(0, third), (0, first)]
    cache.close()


@pytest.mark.parametrize(
    "use", [lambda c: c.get(A, code), lambda c: c.function(A, "k"), lambda c: c.acquire(B, code)]
)
def test_nothing_is_given_after_closing(use: Callable[[ModuleCache], object]) -> None:
    cache = ModuleCache(FakeDriver(), 0)
    cache.get(A, code)
    cache.close()
    with pytest.raises(Released, match="have been released"):
        use(cache)


def test_a_module_that_was_being_loaded_while_all_are_closed_is_released_too() -> None:
    driver, started, go = FakeDriver(), threading.Event(), threading.Event()

    def wait(*arguments: object) -> None:
        started.set()
        assert go.wait(30)

    driver.before["load_module"] = wait
    cache = ModuleCache(driver, 0)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(cache.get, A, code)
        assert started.wait(30)
        cache.close()
        go.set()
        assert isinstance(late.exception(30), Released)
    assert driver.modules == {}


def test_loads_and_shares_are_counted() -> None:
    counters = Counters()
    cache = ModuleCache(FakeDriver(), 0, counters=counters)
    for digest in (A, B, A):
        cache.get(digest, code)
    counts = counters.snapshot()
    assert (counts["loads"], counts["shared"], counts["bytes_loaded"]) == (2, 1, 128)
    assert counts["seconds_loading"] > 0
