"""Graph captures: nothing is loaded inside one, and what is loaded already is launched and replayed."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from runtime_kit import FAMILY, deployment, flip, k1, key, opened, three
from standin_hip import StandIn
from store_kit import blob_file

from mono_runtime.errors import CaptureActive, LaunchMissing, StoreDamaged
from mono_runtime.store import Store

BUILD = {"tokens": 1, "tp": 4}


class FakeTorch:
    """A torch for HIP as far as the runtime asks it: which stream is current on a device."""

    def __init__(self) -> None:
        self.version = SimpleNamespace(hip="7.0")
        self.used = True
        self.streams: dict[int, int] = {}
        self.cuda = SimpleNamespace(
            is_initialized=lambda: self.used,
            current_stream=lambda d: SimpleNamespace(cuda_stream=self.streams.get(d, 0)),
        )


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    fake = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)  # type: ignore[arg-type]
    return fake


@pytest.fixture
def store(hip: StandIn, place: Path) -> Iterator[Store]:
    with opened(place) as store:
        yield store


def captured(hip: StandIn, store: Store) -> int:
    """A stream that is recording a graph, made as torch makes its own."""
    stream = store.driver.create_stream(0)
    hip.begin_capture(stream)
    return stream


def test_a_first_load_while_torchs_current_stream_records(
    hip: StandIn, store: Store, torch: FakeTorch
) -> None:
    stream = torch.streams[0] = captured(hip, store)
    loader = store.on()
    for load in (
        lambda: loader.load(key("k1", 1)),
        lambda: loader.resolve(key("k1", 1)),
        lambda: store.launch(FAMILY, "k3", **BUILD),
        lambda: loader.preload(loader.keys()),
        lambda: loader.preload([]),
    ):
        with pytest.raises(CaptureActive) as caught:
            load()
        assert caught.value.where == "device 0"
        assert caught.value.fix == (
            "load it before the capture: preload the deployment's launches when the server starts,"
            " or run one step of this width eagerly first"
        )
    assert hip.calls("hipModuleLoadData") == 0
    # The capture was not harmed, and the launch loads after it.
    hip.destroy_graph(hip.end_capture(stream))
    loader.load(key("k1", 1))
    loader.agree(None)
    assert store.snapshot()["misses"] == {"capture": 3}


def test_a_stream_that_records_is_asked_of_each_device(
    two_devices: StandIn, store: Store, torch: FakeTorch
) -> None:
    torch.streams[1] = store.driver.create_stream(1)
    two_devices.begin_capture(torch.streams[1])
    store.on(0).load(key("k1", 1))


def test_without_torch_the_default_stream_counts(hip: StandIn, store: Store) -> None:
    waits_for_it = ctypes.c_uint64()
    hip.c.hipStreamCreate(ctypes.byref(waits_for_it))
    hip.begin_capture(waits_for_it.value)
    with pytest.raises(CaptureActive):
        store.launch(FAMILY, "k3", **BUILD)
    hip.destroy_graph(hip.end_capture(waits_for_it.value))
    store.launch(FAMILY, "k3", **BUILD)


def test_a_torch_that_has_touched_no_device_is_not_asked(
    hip: StandIn, store: Store, torch: FakeTorch
) -> None:
    torch.used = False
    torch.streams[0] = captured(hip, store)
    store.launch(FAMILY, "k3", **BUILD)


def test_a_captured_launch_is_replayed_with_the_arguments_of_the_capture(
    hip: StandIn, store: Store, torch: FakeTorch
) -> None:
    launch = store.launch(FAMILY, "k1", **BUILD, fold=False)
    bound = launch.bind(x=1, n=3)
    chain = store.launch(FAMILY, "k2", **BUILD)
    stream = torch.streams[0] = captured(hip, store)
    launch(1, 2, 3, stream=stream)
    bound(4, stream=stream)
    launch.bind(x=5, out=6, n=7, stream=stream)()
    chain(8, 512, 256, stream=stream)
    assert store.on().load(key("k1", 1)) is launch
    graph = hip.end_capture(stream)
    assert graph
    sent = [(r.symbol, r.grid[0], r.kernargs) for r in hip.launches()]
    assert [r.captured for r in hip.launches()] == [True] * 5
    assert sent[:3] == [("k1_1", 256, three(*a)) for a in ((1, 2, 3), (1, 4, 3), (5, 6, 7))]
    assert [s[:2] for s in sent[3:]] == [("k2_1_first", 2), ("k2_1_rest", 1)]

    # The buffers of the capture are written again, by calls of every kind.
    for n in range(3):
        launch(90, 91, n, stream=stream)
        bound(92, stream=stream)
        chain(93, 2560, 0, stream=stream)
    hip.forget_launches()
    hip.replay(graph, stream)
    hip.destroy_graph(graph)
    replayed = hip.launches()
    assert [(r.symbol, r.grid[0], r.kernargs) for r in replayed] == sent
    assert [r.captured for r in replayed] == [False] * 5


def test_a_graph_outlives_the_threads_and_objects_of_its_capture(
    hip: StandIn, store: Store
) -> None:
    stream = captured(hip, store)
    store.launch(FAMILY, "k1", **BUILD, fold=False).bind(x=1, out=2, n=3, stream=stream)()
    graph = hip.end_capture(stream)
    hip.forget_launches()
    hip.replay(graph, stream)
    hip.destroy_graph(graph)
    assert [r.kernargs for r in hip.launches()] == [three(1, 2, 3)]


def test_a_launch_that_no_store_has_is_missing_inside_a_capture_too(
    hip: StandIn, place: Path, torch: FakeTorch
) -> None:
    with opened(place, policy="stock") as store:
        torch.streams[0] = captured(hip, store)
        with pytest.raises(LaunchMissing):
            store.launch(FAMILY, "k1", tokens=3, tp=4, fold=False)
        assert store.on().resolve(key("k1", 3)) is None
        assert store.snapshot()["fallbacks"] == {"stock": {"missing": 1}}


def test_a_failure_that_is_known_is_not_hidden_by_a_capture(
    hip: StandIn, place: Path, torch: FakeTorch
) -> None:
    flip(blob_file(place, k1(1).digest))
    with opened(place, policy="stock") as store:
        loader = store.on()
        assert loader.resolve(key("k1", 1)) is None
        torch.streams[0] = captured(hip, store)
        assert loader.resolve(key("k1", 1)) is None
        with pytest.raises(StoreDamaged):
            loader.load(key("k1", 1))
        # Of this one nobody knows yet that its code is damaged too.
        with pytest.raises(CaptureActive):
            loader.resolve(key("k3", 1))
        assert store.snapshot()["misses"] == {"capture": 1, "damaged": 3}


def test_preloaded_launches_need_no_more_than_the_call_inside_a_capture(
    hip: StandIn, store: Store, torch: FakeTorch
) -> None:
    loader = store.on()
    loader.preload(loader.keys())
    stream = torch.streams[0] = captured(hip, store)
    before = {name: hip.calls(name) for name in ("hipModuleLoadData", "hipMalloc", "hipMemcpy")}
    for made in deployment():
        launch = loader.load(made.key)
        assert launch.plan == made.plan
        launch(4096, 512, 1, stream=stream)
    assert {name: hip.calls(name) for name in before} == before
    graph = hip.end_capture(stream)
    assert graph
    hip.destroy_graph(graph)
