"""Threads that load and launch at once."""

from __future__ import annotations

import struct
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from runtime_kit import FAMILY, deployment, key, opened, three
from standin_hip import StandIn, records_of

from mono_runtime.errors import DriverError, Released
from mono_runtime.launching.launch import Launch
from mono_runtime.loader import Loader
from mono_runtime.store import Store


@pytest.fixture(autouse=True)
def _threads_change_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def at_once(count: int, work: Callable[[int], object]) -> list[object]:
    """What ``work`` returns for 0, 1 ..., each in a thread, all of which start together."""
    start = threading.Barrier(count)

    def run(number: int) -> object:
        start.wait(30)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def test_each_module_is_loaded_once_and_each_key_has_one_launch(hip: StandIn, place: Path) -> None:
    keys = [made.key for made in deployment()]
    with opened(place) as store:

        def load(number: int) -> list[int]:
            loader = store.on()
            order = keys[number:] + keys[:number]
            ids = {k: id(loader.load(k)) for k in order}
            return [ids[k] for k in keys]

        found = at_once(8, load)
        assert found == [found[0]] * 8
        assert hip.calls("hipModuleLoadData") == 4
        assert hip.alive("modules") == 4
        assert len(store.on().launches) == 8
        assert store.snapshot()["launches"] == {FAMILY: {"k1": 0, "k2": 0, "k3": 0}}
    assert hip.all_alive() == {}


def test_threads_that_ask_for_one_launch_at_once_get_one(hip: StandIn, place: Path) -> None:
    for _ in range(20):
        with opened(place) as store:
            found = at_once(8, lambda _: id(store.launch(FAMILY, "k3", tokens=1, tp=4)))
            assert len(set(found)) == 1
            store.launch(FAMILY, "k3", tokens=1, tp=4)(1, 2, 3)
            assert store.snapshot()["launches"] == {FAMILY: {"k3": 1}}
    assert hip.calls("hipModuleLoadData") == 20


def test_one_failure_is_every_waiting_threads_and_the_next_load_works(
    hip: StandIn, place: Path
) -> None:
    hip.fail("hipModuleLoadData", 2)
    with opened(place) as store:

        def load(_: int) -> str | None:
            try:
                store.on().load(key("k1", 1))
            except DriverError as error:
                return error.symbol
            return None

        assert at_once(8, load) == ["hipErrorOutOfMemory"] * 8
        hip.fail("hipModuleLoadData", 0)
        assert at_once(8, load) == [None] * 8
        store.on().agree(None)
    assert hip.all_alive() == {}


@pytest.mark.parametrize("form", ["positional", "by name", "bound", "bound by each thread"])
def test_kernargs_of_threads_never_mix(
    hip: StandIn, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    calls, threads = 1000, 4
    monkeypatch.setenv("STANDIN_RECORD_FILE", str(tmp_path / "record"))
    hip.reset()
    with opened(place) as store:
        launch = store.launch(FAMILY, "k1", tokens=1, tp=4, fold=False)
        bound = launch.bind(stream=0)
        make: dict[str, Callable[[], Callable[..., None]]] = {
            "positional": lambda: launch,
            "by name": lambda: lambda x, out, n: launch(n=n, x=x, out=out),
            "bound": lambda: bound,
            "bound by each thread": lambda: launch.bind(stream=0),
        }

        def work(number: int) -> None:
            call = make[form]()
            for n in range(number * calls, (number + 1) * calls):
                # Each half of each value tells which call it is of.
                call(n << 32 | n, ~n << 32 | n, n)

        at_once(threads, work)
        assert launch.calls == threads * calls
    monkeypatch.delenv("STANDIN_RECORD_FILE")
    hip.reset()
    sent = [r.kernargs for r in records_of(tmp_path / "record")]
    expected = [struct.pack("<QqQ", n << 32 | n, ~n << 32 | n, n) for n in range(threads * calls)]
    assert sorted(sent) == sorted(expected)


def test_launches_of_one_thread_go_on_while_another_loads(hip: StandIn, place: Path) -> None:
    with opened(place) as store:
        launch: Launch = store.launch(FAMILY, "k1", tokens=1, tp=4, fold=False)
        loaded = threading.Event()

        def work(number: int) -> None:
            if number:
                store.on().preload(store.keys())
                loaded.set()
                return
            launch(0, 0, 0)
            while not loaded.wait(0):
                launch(1, 2, 3)
            launch(4, 5, 6)

        at_once(2, work)
    sent = [r.kernargs for r in hip.launches()]
    assert sent[-1] == three(4, 5, 6)
    assert set(sent) <= {three(0, 0, 0), three(1, 2, 3), three(4, 5, 6)}


def test_closing_while_threads_load_releases_everything(hip: StandIn, place: Path) -> None:
    keys = [made.key for made in deployment()]

    def work(store: Store, loader: Loader, number: int) -> str:
        try:
            if number == 0:
                store.close()
            for k in keys[number:] + keys[:number]:
                loader.load(k)
        except Released:
            return "released"
        return "loaded all"

    for _ in range(20):
        store = opened(place)
        loader = store.on()
        ended = at_once(5, partial(work, store, loader))
        assert ended[0] == "released"
        assert hip.all_alive() == {}
        assert dict(loader.launches) == {}
