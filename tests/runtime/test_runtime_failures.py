"""What goes wrong reaches the right error, with what to do, and the other launches go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import standin_hip
from runtime_kit import (
    FAMILY,
    artefact_file,
    deployment,
    flip,
    index_of,
    k1,
    k2,
    k3,
    kernels_from,
    key,
    opened,
    publish,
    three,
)
from standin_hip import FakeDevice, StandIn
from store_kit import as_other_user, blob_file

from mono_runtime.errors import (
    ArgumentMismatch,
    DeviceMissing,
    DriverError,
    InvalidValue,
    KernelSourcesDiffer,
    LaunchMissing,
    MonoError,
    NotResident,
    StoreDamaged,
    StoreMissing,
    StorePermission,
    WrongDevice,
)
from mono_runtime.store import Store


def still_launches(hip: StandIn, store: Store, launch: str = "k2") -> None:
    """The launches of two tokens, which nothing was done to, work."""
    fields = {"fold": False} if launch == "k1" else {}
    hip.forget_launches()
    store.launch(FAMILY, launch, tokens=2, tp=4, **fields)(4096, 8, 1)
    assert hip.launched() == (2 if launch == "k2" else 1)


# ---- what is not in the store ----


def test_a_launch_that_no_store_has_is_told_with_the_nearest_entries(
    hip: StandIn, place: Path
) -> None:
    with opened(place) as store:
        with pytest.raises(LaunchMissing) as caught:
            store.launch(FAMILY, "k1", tokens=3, tp=4, fold=True)
        assert str(caught.value).splitlines() == [
            "the store does not have deepseek_v41/k1 gfx942 fold=true tokens=3 tp=4",
            "  nearest: tokens is 2, not 3",
            "  nearest: tokens is 1, not 3",
            "  nearest: fold is false, not true; tokens is 2, not 3",
            f"  where: {place}",
            "  do:    build a store for what this server asks for (mono-build plan lists it), or start"
            " the server with what was built",
        ]
        assert caught.value.reason == "fields"
        still_launches(hip, store)


@pytest.mark.parametrize(
    ("family", "launch", "fields", "said"),
    [
        ("kimi_k3", "k1", {}, "it has no family kimi_k3; it has deepseek_v41"),
        (FAMILY, "k9", {}, "its deepseek_v41 has no launch k9; it has k1, k2, k3"),
        (FAMILY, "k3", {"ratio": 4}, "nearest: no ratio, which is 4 here"),
        (FAMILY, "k1", {}, "nearest: fold is false, which was not given"),
    ],
)
def test_what_the_store_has_instead_is_told(
    hip: StandIn, place: Path, family: str, launch: str, fields: dict[str, int], said: str
) -> None:
    with opened(place) as store, pytest.raises(LaunchMissing) as caught:
        store.launch(family, launch, tokens=1, tp=4, **fields)
    assert said in caught.value.what


def test_an_empty_store_says_that_it_has_nothing(hip: StandIn, tmp_path: Path) -> None:
    with opened(publish(tmp_path / "empty")) as store:
        with pytest.raises(LaunchMissing, match="it has no launches at all"):
            store.launch(FAMILY, "k1", tokens=1, tp=4, fold=False)
        assert store.on().preload(store.keys()).loaded == 0


# ---- damage ----


def _code(place: Path) -> Path:
    return blob_file(place, k1(1).digest)


def _artefact(place: Path) -> Path:
    return artefact_file(place, k1(1))


def _inputs(place: Path) -> Path:
    (digest,) = {
        json.loads(blob_file(place, e["artefact"]).read_bytes())["inputs"]
        for e in index_of(place)[1]
    }
    return blob_file(place, digest)


@pytest.mark.parametrize("which", [_code, _artefact], ids=["code object", "artefact"])
@pytest.mark.parametrize(
    ("harm", "error", "said"),
    [
        (flip, StoreDamaged, "the content is not what its name says: expected sha256:"),
        (lambda f: f.write_bytes(b""), StoreDamaged, ""),
        (lambda f: f.write_bytes(f.read_bytes()[: f.stat().st_size // 2]), StoreDamaged, ""),
        (lambda f: f.unlink(), StoreMissing, "no such file in the store"),
    ],
    ids=["a bit", "nothing left", "half left", "gone"],
)
def test_a_damaged_file_is_named_and_costs_only_the_launches_that_need_it(
    hip: StandIn,
    place: Path,
    which: Callable[[Path], Path],
    harm: Callable[[Path], object],
    error: type[MonoError],
    said: str,
) -> None:
    file = which(place)
    harm(file)
    with opened(place) as store:
        with pytest.raises(error) as caught:
            store.launch(FAMILY, "k1", tokens=1, tp=4, fold=False)
        assert type(caught.value) is error
        assert caught.value.where == str(file)
        assert said in caught.value.what
        assert "rebuild the store" in (caught.value.fix or "")
        assert hip.calls("hipModuleLoadData") == 0
        still_launches(hip, store)

        # Two builds of k1 share the artefact, and k3 the code object too.
        broken = [key("k1", 1), key("k1", 1, fold=True)]
        broken += [key("k3", 1)] if which is _code else []
        with pytest.raises(error) as gathered:
            store.on().preload(store.keys())
        assert f"{len(broken)} of 8 launches could not be loaded" in gathered.value.what
        assert all(f"{k}: " in gathered.value.what for k in broken)
        assert set(store.on().launches) == set(store.keys()) - set(broken)
    assert hip.all_alive() == {}


def test_two_files_that_were_swapped_are_both_found(hip: StandIn, place: Path) -> None:
    one, two = (blob_file(place, k1(tokens).digest) for tokens in (1, 2))
    first, second = one.read_bytes(), two.read_bytes()
    assert len(first) == len(second)
    one.write_bytes(second)
    two.write_bytes(first)
    with opened(place) as store:
        for tokens in (1, 2):
            with pytest.raises(StoreDamaged, match=f"expected {k1(tokens).digest}, found sha256"):
                store.launch(FAMILY, "k1", tokens=tokens, tp=4, fold=False)
        still_launches(hip, store)


def test_a_mended_file_loads_without_opening_the_store_again(hip: StandIn, place: Path) -> None:
    flip(_code(place))
    with opened(place) as store:
        for _ in range(2):
            with pytest.raises(StoreDamaged):
                store.launch(FAMILY, "k3", tokens=1, tp=4)
        flip(_code(place))
        store.launch(FAMILY, "k3", tokens=1, tp=4)(1, 2, 3)
        store.on().agree(None)
    assert [r.kernargs for r in hip.launches()] == [three(1, 2, 3)]


def test_damaged_inputs_are_found_before_anything_is_loaded(hip: StandIn, place: Path) -> None:
    flip(_inputs(place))
    with opened(place) as store, pytest.raises(StoreDamaged) as caught:
        store.launch(FAMILY, "k1", tokens=1, tp=4, fold=False)
    assert caught.value.where == str(_inputs(place))
    assert hip.calls("hipModuleLoadData") == 0


@pytest.mark.parametrize("which", [_code, _artefact], ids=["code object", "artefact"])
def test_a_file_that_another_user_closed_is_a_matter_of_permission(
    hip: StandIn, public: Path, which: Callable[[Path], Path]
) -> None:
    place = publish(public / "store", *deployment())
    file = which(place)
    file.chmod(0 if os.geteuid() else 0o600)

    def work() -> list[str]:
        with opened(place) as store:
            with pytest.raises(StorePermission) as caught:
                store.launch(FAMILY, "k1", tokens=1, tp=4, fold=False)
            still_launches(hip, store)
            return [caught.value.what, caught.value.where or "", caught.value.fix or ""]

    assert as_other_user(work) == [
        "no permission to read a file of the store",
        str(file),
        "give this user read permission (a store is built with modes 0644 and 0755)",
    ]


# ---- the device ----


def test_a_store_for_another_architecture(two_devices: StandIn, tmp_path: Path) -> None:
    with opened(publish(tmp_path / "store", *deployment("gfx950"))) as store:
        with pytest.raises(WrongDevice) as caught:
            store.on(0).launch(FAMILY, "k1", tokens=1, tp=4, fold=False)
        assert caught.value.what == (
            "the store holds launches for gfx950 and none for device 0, AMD Instinct MI300X"
            " (gfx942:sramecc+:xnack-, 304 compute units)"
        )
        assert caught.value.fix == "build a store for this device: mono-build --arch gfx942 ..."
        with pytest.raises(WrongDevice, match="a launch for gfx950 was asked for on device 0"):
            store.on(0).load(key("k1", 1, "gfx950"))
        assert store.on(0).keys() == ()
        assert store.on(1).preload(store.keys()).loaded == 4


def test_a_device_that_launches_are_never_built_for(hip: StandIn, place: Path) -> None:
    hip.reset(FakeDevice("gfx90a:sramecc+:xnack-", 104, name="AMD Instinct MI250X"))
    with opened(place) as store, pytest.raises(WrongDevice) as caught:
        store.launch(FAMILY, "k1", tokens=1, tp=4, fold=False)
    assert caught.value.what.startswith("no launches are built for device 0, AMD Instinct MI250X")
    assert caught.value.fix == "use a device of the architecture gfx942 or gfx950"


@pytest.mark.parametrize(
    ("features", "device", "wanted"),
    [
        ({"xnack": True}, "gfx942:sramecc+:xnack-", "run the device with xnack+"),
        ({"xnack": False}, "gfx942:sramecc+:xnack+", "run the device with xnack-"),
        ({"sramecc": False}, "gfx942:sramecc+:xnack-", "run the device with sramecc-"),
    ],
)
def test_code_for_other_feature_flags_never_reaches_the_driver(
    hip: StandIn, tmp_path: Path, features: dict[str, bool], device: str, wanted: str
) -> None:
    hip.reset(FakeDevice(device))
    place = publish(tmp_path / "store", k1(1, **features), k2(2))
    with opened(place) as store:
        with pytest.raises(WrongDevice, match=r"device 0 \(AMD Instinct MI300X\) is ") as caught:
            store.launch(FAMILY, "k1", tokens=1, tp=4, fold=False)
        assert wanted in (caught.value.fix or "")
        assert hip.calls("hipModuleLoadData") == 0
        still_launches(hip, store)


def test_a_persistent_grid_needs_its_compute_units(hip: StandIn, tmp_path: Path) -> None:
    # 64 registers: 8 waves a SIMD, so four workgroups of 512 on each compute unit.
    place = publish(tmp_path / "store", k1(1, grid=256), k1(2, grid=152), k3(1), k2(2))
    hip.reset(FakeDevice(compute_units=38))
    with opened(place) as store:
        with pytest.raises(NotResident) as caught:
            store.launch(FAMILY, "k1", tokens=1, tp=4, fold=False)
        assert "256 workgroups" in caught.value.what
        assert "152 fit at once" in caught.value.what
        assert "a whole MI300X has 304" in caught.value.what
        assert "SPX" in (caught.value.fix or "")
        still_launches(hip, store)
        still_launches(hip, store, "k1")
        # The grid that fits exactly, and one that needs no room, which shares the refused one's code.
        residency = store.on().residency(key("k1", 2))
        assert residency is not None
        assert (residency.persistent, [f.each for f in residency.fits]) == (True, [4])
        store.launch(FAMILY, "k3", tokens=1, tp=4)(1, 2, 3)
        assert store.on().residency(key("k1", 1)) is None
    assert hip.all_alive() == {}


def test_the_drivers_answer_counts_where_it_is_less(hip: StandIn, place: Path) -> None:
    hip.reset(FakeDevice(compute_units=100), occupancy=2)
    with opened(place) as store:
        with pytest.raises(NotResident, match="200 fit at once"):
            store.launch(FAMILY, "k1", tokens=1, tp=4, fold=False)
        still_launches(hip, store)


def test_no_persistent_launch_under_a_compute_unit_mask(
    hip: StandIn, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HSA_CU_MASK", "0:0-79")
    with opened(place) as store:
        with pytest.raises(NotResident, match="HSA_CU_MASK=0:0-79 may hide compute units"):
            store.launch(FAMILY, "k1", tokens=1, tp=4, fold=False)
        still_launches(hip, store)


# ---- the installed kernels ----


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on the path with a vllm of two files, which nobody may import."""
    package = tmp_path / "site" / "vllm"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    (package / "models" / "mono.py").write_text("ROWS = 8\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    return tmp_path / "site"


def test_the_kernels_that_a_store_was_built_from_are_installed(
    hip: StandIn, tmp_path: Path, installed: Path
) -> None:
    place = publish(tmp_path / "store", *deployment(), used=kernels_from(installed))
    with opened(place) as store:
        store.on().preload(store.keys())
    assert "vllm" not in sys.modules


def test_other_kernels_are_installed(hip: StandIn, tmp_path: Path, installed: Path) -> None:
    place = publish(tmp_path / "store", *deployment(), used=kernels_from(installed))
    (installed / "vllm" / "models" / "mono.py").write_text("ROWS = 9\n")
    with opened(place) as store:
        with pytest.raises(KernelSourcesDiffer) as caught:
            store.launch(FAMILY, "k1", tokens=1, tp=4, fold=False)
        assert caught.value.what.splitlines() == [
            "the installed vllm is not what the store was built from: 1 of 2 files differ",
            "  vllm/models/mono.py: its content is another",
        ]
        assert caught.value.where == f"{installed / 'vllm'}; store {place}"
        assert caught.value.fix == (
            "build a store from the vllm that is installed, or install vllm 0.33.0"
        )
    assert hip.calls("hipModuleLoadData") == 0


# ---- HIP ----


@pytest.mark.parametrize(
    ("function", "status", "symbol"),
    [
        ("hipModuleLoadData", 2, "hipErrorOutOfMemory"),
        ("hipModuleGetFunction", 500, "hipErrorNotFound"),
        ("hipModuleOccupancyMaxActiveBlocksPerMultiprocessor", 719, "hipErrorLaunchFailure"),
    ],
)
def test_hip_fails_while_a_launch_is_loaded(
    hip: StandIn, place: Path, function: str, status: int, symbol: str
) -> None:
    with opened(place) as store:
        store.launch(FAMILY, "k1", tokens=2, tp=4, fold=False)
        hip.fail(function, status)
        with pytest.raises(DriverError) as caught:
            store.launch(FAMILY, "k1", tokens=1, tp=4, fold=False)
        assert f"{function} failed on device 0: {symbol} ({status})" in caught.value.what
        assert (caught.value.status, caught.value.symbol) == (status, symbol)
        # torch would take it for its own.
        assert hip.c.hipGetLastError() == 0
        still_launches(hip, store, "k1")
        hip.fail(function, 0)
        store.launch(FAMILY, "k1", tokens=1, tp=4, fold=False)(1, 2, 3)
    assert hip.launches()[-1].kernargs == three(1, 2, 3)
    assert hip.all_alive() == {}


def test_hip_fails_at_a_call(hip: StandIn, place: Path) -> None:
    with opened(place) as store:
        launch = store.launch(FAMILY, "k1", tokens=1, tp=4, fold=False)
        bound = launch.bind(x=1, out=2)
        launch(1, 2, 3)
        hip.fail("hipModuleLaunchKernel", 719)
        for call in (lambda: launch(1, 2, 4), lambda: launch(x=1, out=2, n=4), lambda: bound(4)):
            with pytest.raises(DriverError, match="hipErrorLaunchFailure") as caught:
                call()
            assert caught.value.what.startswith("hipModuleLaunchKernel failed on device 0")
        hip.fail("hipModuleLaunchKernel", 0)
        launch(1, 2, 5)
        bound(6)
        assert launch.calls == 3
    assert [r.kernargs for r in hip.launches()] == [three(1, 2, n) for n in (3, 5, 6)]


def test_no_device(hip: StandIn, place: Path) -> None:
    hip.reset(none=True)
    with opened(place) as store:
        assert store.missing([key("k1", 9)]) == (key("k1", 9),)
        with pytest.raises(DeviceMissing, match="hipErrorNoDevice"):
            store.launch(FAMILY, "k1", tokens=1, tp=4, fold=False)


_NO_LIBRARY = """
import sys, mono_runtime
from mono_runtime.errors import DriverMissing
store = mono_runtime.open(sys.argv[1])
assert len(store.keys()) == 8
for use in (store.on, lambda: store.on(0)):
    try:
        use()
    except DriverMissing as error:
        print(error)
store.close()
"""


def test_no_hip_library(place: Path, tmp_path: Path) -> None:
    absent = str(tmp_path / "libamdhip64.so.7")
    environment = {**standin_hip.environment(), "MONO_HIP_LIBRARY": absent}
    done = subprocess.run(
        [sys.executable, "-c", _NO_LIBRARY, str(place)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(absent) >= 2
    assert done.stdout.count("  do: ") == 2


# ---- the caller ----


def test_another_list_of_arguments_is_told_beside_the_launchs_own(
    hip: StandIn, place: Path
) -> None:
    with opened(place) as store:
        loader = store.on()
        with pytest.raises(ArgumentMismatch) as caught:
            loader.load(key("k1", 1), signature=["x", "scale", "out", "n"])
        assert caught.value.what.splitlines() == [
            "the caller's arguments are not those of the launch; they differ from number 2 on",
            "  caller (4): x, scale, out, n",
            "  launch (3): x, out, n",
        ]
        typed = [("x", "i64"), ("out", "i64"), ("n", "i64")]
        with pytest.raises(ArgumentMismatch) as caught:
            loader.load(key("k1", 1), signature=typed)
        assert "  launch (3): x: i64, out: i64, n: i32" in caught.value.what
        # The launch itself is sound, and one caller's mistake is not another's.
        loader.load(key("k1", 1), signature=["x", "out", "n"])(1, 2, 3)
        loader.load(key("k1", 1), signature=[*typed[:2], ("n", "i32")])
        loader.agree(None)


@pytest.mark.parametrize(
    ("args", "named", "said"),
    [
        ((1, 2), {}, "takes 3 arguments and was given 2; missing: n"),
        ((1, 2, 3, 0, 5), {}, "takes 3 arguments and was given 5"),
        ((1, 2), {"m": 3}, "was given 'm' and does not have it"),
        ((1, 2, 2**32), {}, "argument 'n' = 4294967296 does not fit in i32"),
        ((1, 2**64, 3), {}, "argument 'out' = 18446744073709551616 does not fit in i64"),
        ((1, "2", 3), {}, "argument 'out' is of type i64 and cannot take str '2'"),
        ((1, 2, 3), {"stream": "main"}, "not a stream: str 'main'"),
    ],
)
def test_a_wrong_call_reaches_no_device(
    hip: StandIn, place: Path, args: tuple[object, ...], named: dict[str, object], said: str
) -> None:
    with opened(place) as store:
        launch = store.launch(FAMILY, "k1", tokens=1, tp=4, fold=False)
        for _ in range(2):
            with pytest.raises(ArgumentMismatch) as caught:
                launch(*args, **named)
            assert said in caught.value.what
            # Also when the launch has settled on integers.
            launch(1, 2, 3)
    assert [r.kernargs for r in hip.launches()] == [three(1, 2, 3)] * 2


def test_a_name_that_no_launch_can_have(hip: StandIn, place: Path) -> None:
    with opened(place) as store, pytest.raises(InvalidValue, match="not a valid launch name"):
        store.launch(FAMILY, "../k1", tokens=1)


def test_a_preload_tells_every_reason_and_loads_the_rest(hip: StandIn, place: Path) -> None:
    flip(_artefact(place))
    wanted = [*(made.key for made in deployment()), key("k1", 3), key("k1", 1, "gfx950")]
    with opened(place) as store:
        with pytest.raises(MonoError) as caught:
            store.on().preload(wanted)
        assert type(caught.value) is MonoError
        lines = caught.value.what.splitlines()
        assert lines[0] == "4 of 10 launches could not be loaded"
        assert "the content is not what its name says" in lines[1]
        assert "the store does not have deepseek_v41/k1 gfx942 fold=false tokens=3" in str(lines)
        assert "a launch for gfx950 was asked for on device 0" in lines[-1]
        assert len(store.on().launches) == 6
        counts = store.snapshot()
        assert counts["misses"] == {"damaged": 2, "device": 1, "missing": 1}
