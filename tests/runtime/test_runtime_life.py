"""The life of a store in a server: opened, looked at, loaded, called, counted and closed."""

from __future__ import annotations

import gc
import hashlib
import json
import struct
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
from runtime_kit import (
    FAMILY,
    deployment,
    index_of,
    k1,
    k2,
    k3,
    key,
    opened,
    publish,
    sha,
    three,
)
from standin_hip import Record, StandIn

import mono_runtime
from mono_runtime.errors import (
    ArgumentMismatch,
    DeviceMissing,
    DriverError,
    InvalidValue,
    Released,
    StoreDiffers,
    StoreMissing,
)
from mono_runtime.launch_key import LaunchKey
from mono_runtime.launching.launch import Launch
from mono_runtime.store import Store

X, OUT = 0x7F12_0000_0000, 0xFFFF_FFFF_FFFF_F000
KERNARGS = struct.pack("<QQi4x", X, OUT, -3)


class Pointer:
    """What a tensor is to a launch."""

    def __init__(self, address: int) -> None:
        self.address = address

    def data_ptr(self) -> int:
        return self.address


def test_the_whole_life_of_a_store(hip: StandIn, place: Path) -> None:
    store = mono_runtime.open(environ={"MONO_STORE": str(place)})
    wanted = [made.key for made in deployment()]
    other = key("k1", 3)
    assert hip.calls("hipGetDeviceCount") == 0
    assert sorted(map(str, store.keys())) == sorted(map(str, wanted))
    assert store.digest == index_of(place)[0]
    assert store.missing([*wanted, other]) == (other,)

    loader = store.on()
    assert (loader.device.ordinal, str(loader.device.architecture)) == (0, "gfx942:sramecc+:xnack-")
    seen: list[tuple[int, int, LaunchKey]] = []
    summary = loader.preload(wanted, progress=lambda *told: seen.append(told))
    assert [told[:2] for told in seen] == [(n, 8) for n in range(1, 9)]
    assert {told[2] for told in seen} == set(wanted)
    assert (summary.loaded, summary.shared, summary.failed) == (4, 4, ())
    size = sum(len({made.digest: made.code for made in deployment()}[d]) for d in _objects())
    assert (summary.code_objects, summary.bytes) == (4, size)
    assert set(loader.launches) == set(wanted)
    assert hip.all_alive() == {"modules": 4}

    launch = loader.launch(FAMILY, "k1", tokens=2, tp=4, fold=False)
    assert launch is loader.launches[key("k1", 2)]
    launch(X, OUT, -3)
    assert hip.launches() == [
        Record(0, "k1_2", (256, 1, 1), (512, 1, 1), 0, 0, KERNARGS, captured=False)
    ]
    counts = store.snapshot()
    assert counts.pop("seconds_loading") > 0
    assert counts == {
        "hits": 8,
        "misses": {},
        "loads": 4,
        "shared": 4,
        "bytes_loaded": size,
        "fallbacks": {},
        "launches": {FAMILY: {"k1": 1, "k2": 0, "k3": 0}},
        "steps_declined": {},
        "waits": {},
    }

    store.close()
    assert hip.all_alive() == {}
    assert store.snapshot()["launches"] == {FAMILY: {"k1": 1, "k2": 0, "k3": 0}}


def _objects() -> set[str]:
    return {made.digest for made in deployment()}


def test_opening_and_asking_what_is_missing_touch_no_driver(place: Path) -> None:
    class Untouchable:
        def __getattr__(self, name: str) -> object:
            raise AssertionError(f"the driver was asked for {name}")

    store = opened(place, driver=Untouchable())
    assert store.missing([key("k1", 1), key("k1", 9)]) == (key("k1", 9),)


CALLS: dict[str, Callable[[Launch, int], None]] = {
    "positional": lambda k, s: k(X, OUT, -3, stream=s),
    "stream last": lambda k, s: k(X, OUT, -3, s),
    "by name": lambda k, s: k(n=-3, out=OUT, x=X, stream=s),
    "mixed": lambda k, s: k(X, n=-3, out=OUT, stream=s),
    "unsigned as signed": lambda k, s: k(X, OUT - 2**64, 2**32 - 3, stream=s),
    "tensors": lambda k, s: k(Pointer(X), Pointer(OUT), -3, stream=s),
    "bound": lambda k, s: k.bind(x=X, n=-3)(OUT, stream=s),
    "bound by name": lambda k, s: k.bind(x=X, n=-3)(out=OUT, stream=s),
    "bound with its stream": lambda k, s: k.bind(x=X, n=-3, stream=s)(OUT),
    "bound tensors": lambda k, s: k.bind(x=Pointer(X), stream=s)(Pointer(OUT), -3),
    "bound in steps": lambda k, s: k.bind(x=X).bind(n=-3, stream=s)(OUT),
    "all bound": lambda k, s: k.bind(x=X, out=OUT, n=-3, stream=s)(),
}


@pytest.mark.parametrize("form", CALLS)
@pytest.mark.parametrize("check", [False, True], ids=["", "checked"])
def test_every_form_of_call_sends_the_same(
    hip: StandIn, place: Path, form: str, check: bool
) -> None:
    with opened(place, check=check) as store:
        launch = store.launch(FAMILY, "k1", tokens=1, tp=4, fold=True)
        stream = store.driver.create_stream(0)
        for _ in range(2):
            CALLS[form](launch, stream)
        assert launch.calls == 2
    sent = Record(0, "k1_1", (256, 1, 1), (512, 1, 1), 0, stream, KERNARGS, captured=False)
    assert hip.launches() == [sent, sent]


def test_grids_and_arguments_that_are_computed(hip: StandIn, place: Path) -> None:
    with opened(place) as store:
        launch = store.launch(FAMILY, "k2", tokens=2, tp=4)
        launch(X, 1000, skip=300)
        launch.bind(x=X)(257, 1)
    first = Record(0, "k2_2_first", (4, 1, 1), (256, 1, 1), 0, 0, _pair(1000), False)
    rest = Record(0, "k2_2_rest", (3, 1, 1), (256, 1, 1), 512, 0, _pair(700), False)
    again = Record(0, "k2_2_first", (2, 1, 1), (256, 1, 1), 0, 0, _pair(257), False)
    last = Record(0, "k2_2_rest", (1, 1, 1), (256, 1, 1), 512, 0, _pair(256), False)
    assert hip.launches() == [first, rest, again, last]


def _pair(n: int) -> bytes:
    return struct.pack("<Qi4x", X, n)


def test_a_code_object_is_loaded_once_however_many_launches_share_it(
    hip: StandIn, place: Path
) -> None:
    with opened(place) as store:
        for launch, fields in (("k1", {"fold": False}), ("k1", {"fold": True}), ("k3", {})):
            store.launch(FAMILY, launch, tokens=1, tp=4, **fields)(X, OUT, 1)
        assert hip.calls("hipModuleLoadData") == 1
        assert [r.symbol for r in hip.launches()] == ["k1_1", "k1_1", "k3_1"]
        counts = store.snapshot()
        assert (counts["hits"], counts["loads"], counts["shared"]) == (3, 1, 2)


def test_a_second_preload_loads_nothing(hip: StandIn, place: Path) -> None:
    with opened(place) as store:
        loader = store.on()
        loader.preload(loader.keys())
        summary = loader.preload(loader.keys())
        assert (summary.loaded, summary.shared, summary.code_objects) == (0, 8, 0)
        assert hip.calls("hipModuleLoadData") == 4


# ---- two devices ----


def test_each_device_has_its_own_launches_and_modules(two_devices: StandIn, both: Path) -> None:
    with opened(both) as store:
        for ordinal, arch in enumerate(("gfx942", "gfx950")):
            loader = store.on(ordinal)
            assert store.on(ordinal) is loader
            assert {k.arch for k in loader.keys()} == {arch}  # noqa: SIM118
            assert loader.preload(loader.keys()).code_objects == 4
            stream = store.driver.create_stream(ordinal)
            loader.launch(FAMILY, "k3", tokens=1, tp=4)(X, OUT, 1, stream=stream)
            store.driver.destroy_stream(ordinal, stream)
        assert [(r.device, r.symbol) for r in two_devices.launches()] == [(0, "k3_1"), (1, "k3_1")]
        assert two_devices.alive("modules") == 8
        assert store.driver.current_device() == 0
    assert two_devices.all_alive() == {}


def test_the_calling_threads_device_is_the_default_one(two_devices: StandIn, both: Path) -> None:
    with opened(both) as store:
        two_devices.c.hipSetDevice(1)
        try:
            store.launch(FAMILY, "k1", tokens=1, tp=4, fold=False)(X, OUT, 1)
        finally:
            two_devices.c.hipSetDevice(0)
        assert store.on().device.ordinal == 0
    assert [r.device for r in two_devices.launches()] == [1]


def test_the_default_stream_of_another_device_is_refused(two_devices: StandIn, both: Path) -> None:
    with opened(both) as store:
        launch = store.on(1).launch(FAMILY, "k1", tokens=1, tp=4, fold=False)
        bound = launch.bind(x=X, n=1)
        for call in (
            lambda: launch(X, OUT, 1),
            lambda: launch(X, OUT, 1, stream=None),
            lambda: bound(OUT),
        ):
            with pytest.raises(ArgumentMismatch, match="current device 0, and the launch runs on"):
                call()
    assert two_devices.launched() == 0


def test_a_stream_of_another_device_launches_nothing(two_devices: StandIn, both: Path) -> None:
    with opened(both) as store:
        launch = store.on(1).launch(FAMILY, "k1", tokens=1, tp=4, fold=False)
        with pytest.raises(DriverError, match="hipErrorInvalidDevice"):
            launch(X, OUT, 1, stream=store.driver.create_stream(0))
        assert launch.calls == 0
    assert two_devices.launched() == 0


@pytest.mark.parametrize("ordinal", [-1, 2])
def test_a_device_that_is_not_there(two_devices: StandIn, both: Path, ordinal: int) -> None:
    with opened(both) as store, pytest.raises(DeviceMissing, match=f"no device {ordinal}"):
        store.on(ordinal)


# ---- the environment ----


def test_of_several_stores_the_first_that_has_a_launch_gives_it(
    hip: StandIn, tmp_path: Path
) -> None:
    first = publish(tmp_path / "1", k1(1, grid=128))
    second = publish(tmp_path / "2", k1(1, grid=64), k1(2, grid=32))
    with mono_runtime.open(environ={"MONO_STORE": f"{first}:{second}"}) as store:
        for tokens in (1, 2):
            store.launch(FAMILY, "k1", tokens=tokens, tp=4, fold=False)(X, OUT, 1)
        assert len(store.keys()) == 2
        digests = [index_of(first)[0], index_of(second)[0]]
        text = json.dumps(digests, separators=(",", ":"))
        assert store.digest == "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    assert [r.grid[0] for r in hip.launches()] == [128, 32]


def test_the_processs_own_environment_is_the_default_one(
    hip: StandIn, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONO_STORE", str(place))
    monkeypatch.setenv("MONO_POLICY", "stock")
    with mono_runtime.open() as store:
        assert len(store.keys()) == 8
        assert store.on().resolve(key("k1", 9)) is None


def test_no_store_is_named() -> None:
    with pytest.raises(StoreMissing, match="no store is named"):
        mono_runtime.open(environ={})


def test_a_pinned_index_is_required(hip: StandIn, place: Path) -> None:
    digest = index_of(place)[0]
    environ = {"MONO_STORE": str(place), "MONO_STORE_DIGEST": digest}
    with mono_runtime.open(environ=environ) as store:
        store.launch(FAMILY, "k3", tokens=1, tp=4)(X, OUT, 1)
    other = "sha256:" + "0" * 64
    with pytest.raises(StoreDiffers, match=f"expected index {other}, found {digest}"):
        mono_runtime.open(environ={**environ, "MONO_STORE_DIGEST": other})
    with pytest.raises(StoreDiffers):
        mono_runtime.open(digest=other, environ=environ)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("MONO_STORE_DIGEST", "latest", "latest"),
        ("MONO_POLICY", "strickt", "did you mean strict?"),
        ("MONO_CHECK", "yes", "set it to 1 or 0"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_when_the_store_is_opened(
    place: Path, variable: str, value: str, said: str
) -> None:
    with pytest.raises(InvalidValue) as caught:
        mono_runtime.open(environ={"MONO_STORE": str(place), variable: value})
    assert said in str(caught.value)


@pytest.mark.parametrize(("value", "checked"), [("1", True), ("0", False), ("", False)])
def test_mono_check_looks_at_every_call_in_full(
    hip: StandIn, place: Path, value: str, checked: bool
) -> None:
    with mono_runtime.open(environ={"MONO_STORE": str(place), "MONO_CHECK": value}) as store:
        launch = store.launch(FAMILY, "k1", tokens=1, tp=4, fold=False)
        calls = (lambda: launch(X, OUT, True), lambda: launch.bind(x=X, n=True)(OUT))
        for call in calls:
            if checked:
                with pytest.raises(ArgumentMismatch, match="a bool is often a build parameter"):
                    call()
            else:
                call()
    assert [r.kernargs for r in hip.launches()] == ([] if checked else [three(X, OUT, 1)] * 2)


# ---- closing ----


def test_nothing_is_used_after_it_was_closed(hip: StandIn, place: Path) -> None:
    store = opened(place)
    loader = store.on()
    launch = loader.launch(FAMILY, "k1", tokens=1, tp=4, fold=False)
    chain = loader.launch(FAMILY, "k2", tokens=1, tp=4)
    bound, full = launch.bind(x=X, n=1), launch.bind(x=X, out=OUT, n=1, stream=0)
    launch(X, OUT, 1)
    bound(OUT)
    chain(X, 1, 0)
    hip.forget_launches()
    store.close()
    for use in (
        lambda: launch(X, OUT, 1),
        lambda: launch(x=X, out=OUT, n=1),
        lambda: launch.bind(x=X),
        lambda: chain(X, 1, 0),
        lambda: bound(OUT),
        lambda: bound.bind(out=OUT),
        full,
        lambda: loader.load(key("k1", 1)),
        lambda: loader.load(key("k1", 9)),
        lambda: loader.resolve(key("k1", 1)),
        lambda: loader.preload([]),
        lambda: loader.agree(None),
        lambda: store.on(),
        lambda: store.on(0),
        lambda: store.launch(FAMILY, "k2", tokens=1, tp=4),
    ):
        with pytest.raises(Released):
            use()
    assert hip.launched() == 0
    assert dict(loader.launches) == {}
    assert loader.residency(key("k1", 1)) is None
    assert hip.all_alive() == {}
    store.close()


def test_a_closed_store_says_so_also_where_there_is_no_device(hip: StandIn, place: Path) -> None:
    store = opened(place)
    store.close()
    hip.reset(none=True)
    with pytest.raises(Released):
        store.on()


def test_a_closed_store_keeps_no_launch_alive(hip: StandIn, place: Path) -> None:
    store = opened(place)
    launch = store.launch(FAMILY, "k1", tokens=1, tp=4, fold=False)
    launch(X, OUT, 1)
    gone = weakref.ref(launch)
    store.close()
    del launch
    gc.collect()
    assert gone() is None
    assert store.snapshot()["launches"] == {FAMILY: {"k1": 1}}


def test_an_exception_in_the_block_closes_the_store(hip: StandIn, place: Path) -> None:
    store = opened(place)
    with pytest.raises(ZeroDivisionError), store:
        _load_and_fail(store)
    assert hip.all_alive() == {}


def _load_and_fail(store: Store) -> None:
    store.on().preload(store.keys())
    raise ZeroDivisionError


def test_what_fails_to_unload_on_one_device_does_not_keep_the_others(
    two_devices: StandIn, both: Path
) -> None:
    store = opened(both)
    for ordinal in (0, 1):
        store.on(ordinal).launch(FAMILY, "k1", tokens=1, tp=4, fold=False)
    two_devices.fail("hipModuleUnload", 999)
    with pytest.raises(DriverError) as caught:
        store.close()
    for ordinal in (0, 1):
        assert f"hipModuleUnload failed on device {ordinal}: hipErrorUnknown" in str(caught.value)
    assert (caught.value.status, caught.value.symbol) == (999, "hipErrorUnknown")
    store.close()


def test_the_store_on_disk_is_as_it_was(hip: StandIn, place: Path) -> None:
    def state() -> dict[str, tuple[int, int, str]]:
        return {
            str(p.relative_to(place)): (p.stat().st_mtime_ns, p.stat().st_mode, _content(p))
            for p in sorted(place.rglob("*"))
        }

    before = state()
    with opened(place) as store:
        store.on().preload(store.keys())
    assert state() == before


def _content(path: Path) -> str:
    return sha(path.read_bytes()) if path.is_file() else ""


def test_made_up_launches_are_what_the_tests_think() -> None:
    assert k1(1).code == k1(1, fold=True).code == k3(1).code != k1(2).code
    assert k1(1).ir == k1(1, fold=True).ir
    assert len({made.digest for made in deployment()}) == 4
    assert k2(1).plan.stream is None
