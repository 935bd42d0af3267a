"""What a server does about launches that it cannot have, and what it counts and logs of that."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runtime_kit import FAMILY, deployment, flip, k1, k2, key, opened, publish, three
from standin_hip import FakeDevice, StandIn
from store_kit import blob_file

from mono_runtime.errors import (
    ArgumentMismatch,
    DriverError,
    LaunchMissing,
    MonoError,
    NotResident,
    StoreDamaged,
)
from mono_runtime.launch_key import LaunchKey
from mono_runtime.metrics import register

MISSING = key("k1", 3)
POLICIES = ("strict", "stock", "jit")


def compiler(made: list[LaunchKey]) -> Callable[[LaunchKey], Callable[..., Any]]:
    """A compile function that notes its keys and returns something to call."""

    def compile(key: LaunchKey) -> Callable[..., Any]:
        made.append(key)
        return lambda *args: ("compiled", *args)

    return compile


@pytest.mark.parametrize("policy", POLICIES)
def test_what_the_store_has_is_served_under_every_policy(
    hip: StandIn, place: Path, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[LaunchKey] = []
    with opened(place, policy=policy) as store:
        launch = store.on().resolve(key("k1", 1), compile=compiler(made))
        assert launch is store.on().load(key("k1", 1))
        assert launch is not None
        launch(1, 2, 3)
        assert store.snapshot()["fallbacks"] == {}
    assert made == []
    assert caplog.records == []
    assert [r.kernargs for r in hip.launches()] == [three(1, 2, 3)]


def test_strict_raises(hip: StandIn, place: Path, caplog: pytest.LogCaptureFixture) -> None:
    made: list[LaunchKey] = []
    with opened(place) as store:
        for _ in range(2):
            with pytest.raises(LaunchMissing):
                store.on().resolve(MISSING, compile=compiler(made))
        assert store.snapshot()["misses"] == {"missing": 2}
        assert store.snapshot()["fallbacks"] == {}
    assert made == []
    assert caplog.records == []


def test_stock_declines_and_says_so_once(
    hip: StandIn, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flip(blob_file(place, k1(2).digest))
    made: list[LaunchKey] = []
    with opened(place, policy="stock") as store:
        for _ in range(3):
            for wanted in (MISSING, key("k1", 2)):
                assert store.on().resolve(wanted, compile=compiler(made)) is None
        assert store.snapshot()["misses"] == {"damaged": 3, "missing": 3}
        assert store.snapshot()["fallbacks"] == {"stock": {"damaged": 3, "missing": 3}}
    assert made == []
    assert [(r.name, r.levelno) for r in caplog.records] == [("mono_runtime", logging.WARNING)] * 2
    assert caplog.messages[0].startswith(
        "deepseek_v41/k1 gfx942 fold=false tokens=3 tp=4 cannot be had from the store, the engine's"
        " own path runs instead (policy stock): the store does not have deepseek_v41/k1 gfx942"
    )
    assert "nearest: tokens is 2, not 3" in caplog.messages[0]
    assert "the content is not what its name says" in caplog.messages[1]


def test_jit_compiles_what_is_missing_and_says_so_once(
    hip: StandIn, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[LaunchKey] = []
    with opened(place, policy="jit") as store:
        for _ in range(2):
            launch = store.on().resolve(MISSING, compile=compiler(made))
            assert launch is not None
            assert launch(7) == ("compiled", 7)
        assert store.snapshot()["fallbacks"] == {"jit": {"missing": 2}}
        assert dict(store.on().launches) == {}
    assert made == [MISSING, MISSING]
    assert len(caplog.records) == 1
    assert "it is compiled in this process (policy jit)" in caplog.messages[0]


def test_jit_without_a_compiler_is_strict(hip: StandIn, place: Path) -> None:
    with opened(place, policy="jit") as store, pytest.raises(LaunchMissing):
        store.on().resolve(MISSING)


def test_load_and_launch_raise_under_every_policy(hip: StandIn, place: Path) -> None:
    for policy in POLICIES:
        with opened(place, policy=policy) as store:
            with pytest.raises(LaunchMissing):
                store.on().load(MISSING)
            with pytest.raises(LaunchMissing):
                store.launch(FAMILY, "k1", tokens=3, tp=4, fold=False)


def test_a_grid_that_does_not_fit_is_declined_and_never_compiled(hip: StandIn, place: Path) -> None:
    hip.reset(FakeDevice(compute_units=20))
    made: list[LaunchKey] = []
    with opened(place, policy="stock") as store:
        assert store.on().resolve(key("k1", 1)) is None
        assert store.snapshot()["fallbacks"] == {"stock": {"residency": 1}}
    with opened(place, policy="jit") as store, pytest.raises(NotResident):
        store.on().resolve(key("k1", 1), compile=compiler(made))
    assert made == []


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_excuses_the_driver_or_the_caller(
    hip: StandIn, place: Path, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[LaunchKey] = []
    with opened(place, policy=policy) as store:
        loader = store.on()
        with pytest.raises(ArgumentMismatch):
            loader.resolve(key("k1", 1), signature=["y"], compile=compiler(made))
        hip.fail("hipModuleLoadData", 2)
        with pytest.raises(DriverError):
            loader.resolve(key("k1", 2), compile=compiler(made))
        assert store.snapshot()["fallbacks"] == {}
    assert made == []
    assert caplog.records == []


# ---- preloading ----


@pytest.mark.parametrize("policy", ["stock", "jit"])
def test_a_preload_tells_what_the_policy_has_a_way_around(
    hip: StandIn, place: Path, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    flip(blob_file(place, k2(1).digest))
    wanted = [MISSING, *(made.key for made in deployment())]
    with opened(place, policy=policy) as store:
        summary = store.on().preload(wanted)
        assert [(f.key, type(f.error)) for f in summary.failed] == [
            (MISSING, LaunchMissing),
            (key("k2", 1), StoreDamaged),
        ]
        assert (summary.loaded + summary.shared, len(store.on().launches)) == (7, 7)
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        assert "9 launches in" in caplog.text
        assert "2 failed" in caplog.text
        assert f"store {store.digest}" in caplog.text


def test_a_preload_raises_what_the_policy_has_no_way_around(hip: StandIn, place: Path) -> None:
    wanted = [MISSING, key("k1", 1), key("k2", 1)]
    hip.fail("hipModuleLoadData", 2, after=1)
    with opened(place, policy="stock") as store:
        with pytest.raises(DriverError) as caught:
            store.on().preload(wanted, workers=1)
        assert caught.value.what.splitlines()[0] == "1 of 3 launches could not be loaded"
        assert "k2 gfx942 tokens=1 tp=4: hipModuleLoadData failed" in caught.value.what
        assert "k1 gfx942 fold=false tokens=3" not in caught.value.what


def test_a_preload_that_went_well_is_told_below_warnings(
    hip: StandIn, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "mono_runtime"), opened(place) as store:
        store.on().preload(store.keys())
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert "8 launches in" in caplog.text
    assert "4 loaded, 4 shared, 0 failed (4 code objects," in caplog.text
    assert "on device 0, AMD Instinct MI300X (gfx942:sramecc+:xnack-, 304 compute units)" in (
        caplog.text
    )


@pytest.mark.parametrize("policy", ["stock", "strict"])
def test_what_progress_raises_ends_the_preload(hip: StandIn, place: Path, policy: str) -> None:
    def progress(done: int, total: int, key: LaunchKey) -> None:
        raise ZeroDivisionError

    with opened(place, policy=policy) as store, pytest.raises(ZeroDivisionError):
        store.on().preload(store.keys(), progress=progress)
    assert hip.all_alive() == {}


# ---- counters ----


def test_everything_is_counted_over_all_devices(two_devices: StandIn, tmp_path: Path) -> None:
    place = publish(tmp_path / "s", *deployment("gfx942", [1]), *deployment("gfx950", [1]))
    with opened(place, policy="stock") as store:
        for ordinal in (0, 1):
            loader = store.on(ordinal)
            loader.preload(loader.keys())
            launch = loader.launch(FAMILY, "k1", tokens=1, tp=4, fold=True)
            bound = launch.bind(x=1, out=2)
            stream = store.driver.create_stream(ordinal)
            launch(1, 2, 3, stream=stream)
            bound(3, stream=stream)
            with pytest.raises(MonoError):
                launch(1, 2, "3", stream=stream)
            assert loader.resolve(loader.key(FAMILY, "k1", tokens=9, tp=4, fold=True)) is None
        counts = store.snapshot()
        assert counts["bytes_loaded"] == sum(
            len(code)
            for code in {
                made.code for arch in ("gfx942", "gfx950") for made in deployment(arch, [1])
            }
        )
        assert (counts["hits"], counts["loads"], counts["shared"]) == (8, 4, 4)
        assert counts["misses"] == {"missing": 2}
        assert counts["fallbacks"] == {"stock": {"missing": 2}}
        assert counts["launches"] == {FAMILY: {"k1": 4, "k2": 0, "k3": 0}}


def test_a_stores_counters_are_prometheus_metrics(hip: StandIn, place: Path) -> None:
    prometheus = pytest.importorskip("prometheus_client")
    registry = prometheus.CollectorRegistry()
    with opened(place, policy="stock") as store:
        register(store.snapshot, registry)
        store.on().preload(store.keys())
        store.on().resolve(MISSING)
        store.launch(FAMILY, "k3", tokens=1, tp=4)(1, 2, 3)
        lines = prometheus.generate_latest(registry).decode().splitlines()
    for line in (
        "mono_runtime_hits_total 8.0",
        "mono_runtime_loads_total 4.0",
        "mono_runtime_shared_total 4.0",
        'mono_runtime_misses_total{reason="missing"} 1.0',
        'mono_runtime_fallbacks_total{policy="stock",reason="missing"} 1.0',
        'mono_runtime_launches_total{family="deepseek_v41",launch="k3"} 1.0',
    ):
        assert line in lines
    # The launches are gone with their store, and what they did is still counted.
    assert (
        registry.get_sample_value("mono_runtime_launches_total", {"family": FAMILY, "launch": "k3"})
        == 1.0
    )
