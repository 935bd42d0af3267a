"""Making a deployment's launches ready at model load: what is loaded, said, declined and refused."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from runtime_kit import index_of, kernels_from
from serving_kit import CONFIGS, config, planned, serving_of, store_of
from standin_hip import StandIn

from mono_runtime.errors import KernelSourcesDiffer, LaunchMissing, StoreMissing, WrongDevice
from mono_runtime.hooks.engine_config import read_engine_config
from mono_runtime.hooks.prepared import Declined, Prepared

V41 = "deepseek_v41"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Every launch of the V4.1 server: six of K1 and of K2 at 6 and at 12 rows."""
    return store_of(tmp_path / "store", planned(V41).keys)


def messages(caplog: pytest.LogCaptureFixture, beginning: str = "deepseek_v41 on") -> list[str]:
    return [r.getMessage() for r in caplog.records if r.getMessage().startswith(beginning)]


def test_all_launches_of_the_deployment_are_loaded_once_and_told_once(
    hip: StandIn, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mono_runtime")
    serving = serving_of(store)
    prepared = serving.prepare(config(V41))
    assert isinstance(prepared, Prepared)
    assert prepared.widths == {6, 12}
    # One code object for each number of rows.
    assert hip.calls("hipModuleLoadData") == 2
    assert serving.prepare(config(V41), family=V41) is prepared
    assert serving.prepare(config(V41)) is prepared
    assert hip.calls("hipModuleLoadData") == 2
    # Nothing else is said.
    assert len(caplog.records) == 1
    (line,) = messages(caplog)
    beginning, _, end = line.partition(" MB) in ")
    assert beginning.startswith(
        "deepseek_v41 on gfx950, TP 4, steps of 6, 12 rows: 24 launches needed, 24 found, 24 loaded"
        " (2 code objects, 0.0"
    )
    assert end.endswith(
        f" s; policy strict, store {index_of(store)[0]}; nothing is compiled; without the store"
        " 24 launches would be"
    )


def test_a_prepared_launch_is_the_stores_and_loads_nothing_more(hip: StandIn, store: Path) -> None:
    prepared = serving_of(store).prepare(config(V41))
    assert prepared is not None
    loads = hip.calls("hipModuleLoadData")
    launch = prepared.launch("k1", 6, ratio=2, fold=True, index=False)
    assert launch is not None
    launch(1, 2, 3, stream=None)
    assert [r.symbol for r in hip.launches()] == ["k1_6"]
    assert hip.calls("hipModuleLoadData") == loads


def test_mono_kernels_that_are_off_are_left_off_without_a_load(
    hip: StandIn, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mono_runtime")
    serving = serving_of(store)
    off = config(V41, kernel_config={"monokernel": False})
    assert serving.prepare(off, family=V41) is None
    assert serving.prepare(off, family=V41) is None
    assert serving.leaves_alone(V41)
    (line,) = messages(caplog, "no prebuilt launches")
    assert line.startswith("no prebuilt launches are used for deepseek_v41: mono kernels are off")
    assert hip.calls("hipModuleLoadData") == 0


def test_mono_kernels_that_were_asked_for_in_vain_are_a_warning(
    hip: StandIn, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = config(V41, parallel_config={"tensor_parallel_size": 8})
    assert serving_of(store).prepare(asked, family=V41) is None
    (record,) = [r for r in caplog.records if "no prebuilt launches" in r.getMessage()]
    assert record.levelno == logging.WARNING
    assert "TP 2 and 4 only, not 8" in record.getMessage()


def test_a_missing_launch_is_refused_at_load_under_strict(hip: StandIn, tmp_path: Path) -> None:
    keys = planned(V41).keys
    serving = serving_of(store_of(tmp_path / "s", keys[:-1]))
    with pytest.raises(LaunchMissing) as caught:
        serving.prepare(config(V41), family=V41)
    assert str(keys[-1]) in str(caught.value)
    assert "1 of 24 launches could not be loaded" in str(caught.value)


def test_stock_serves_the_widths_that_are_complete_and_says_what_is_missing(
    hip: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = planned(V41).keys
    absent = next(k for k in keys if k.values["tokens"] == 12)
    serving = serving_of(
        store_of(tmp_path / "s", [k for k in keys if k != absent]), MONO_POLICY="stock"
    )
    prepared = serving.prepare(config(V41))
    assert prepared is not None
    assert prepared.widths == {6}
    assert (prepared.summary.needed, prepared.summary.found, prepared.summary.loaded) == (
        24,
        23,
        23,
    )
    (text,) = messages(caplog)
    first, *others = text.splitlines()
    assert first.endswith("1 launch would have to be compiled, and will not be")
    assert others == ["  steps served from the store: 6 rows", f"  not in the store: {absent}"]
    assert prepared.launch("k1", 12, **_variant(absent)) is None


def _variant(key: object) -> dict[str, object]:
    values = dict(key.values)  # type: ignore[attr-defined]
    del values["tokens"]
    return values


def test_jit_leaves_what_is_missing_to_the_compiler(
    hip: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = planned(V41).keys
    serving = serving_of(store_of(tmp_path / "s", keys[:-1]), MONO_POLICY="jit")
    prepared = serving.prepare(config(V41))
    assert prepared is not None
    assert prepared.compiles
    (text,) = messages(caplog)
    assert "1 launch will be compiled in this process, when first used" in text


@pytest.mark.parametrize("policy", ["strict", "jit"])
def test_a_store_that_is_not_there_is_an_error(hip: StandIn, tmp_path: Path, policy: str) -> None:
    with pytest.raises(StoreMissing):
        serving_of(tmp_path / "none", MONO_POLICY=policy).prepare(config(V41), family=V41)


def test_a_store_that_is_not_there_is_declined_under_stock(
    hip: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    serving = serving_of(tmp_path / "none", MONO_POLICY="stock")
    assert serving.prepare(config(V41), family=V41) is None
    state = serving.state(V41)
    assert isinstance(state, Declined)
    assert state.by_policy
    assert not serving.leaves_alone(V41)
    (line,) = messages(caplog, V41)
    assert line.startswith("deepseek_v41: the engine's own path runs (policy stock): ")
    assert str(tmp_path / "none") in line


def test_a_store_for_another_device_goes_by_the_policy(hip: StandIn, tmp_path: Path) -> None:
    from mono_runtime.launch_key import LaunchKey

    keys = [LaunchKey.of(k.family, k.launch, "gfx942", k.values) for k in planned(V41).keys]
    store = store_of(tmp_path / "s", keys)
    with pytest.raises(WrongDevice):
        serving_of(store).prepare(config(V41))
    assert serving_of(store, MONO_POLICY="stock").prepare(config(V41)) is None


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed kernel package of two files."""
    package = tmp_path / "site" / "mono_kernels"
    package.mkdir(parents=True)
    for name in ("__init__", "layer"):
        (package / f"{name}.py").write_text(f"# {name}\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    return package


def test_kernels_of_another_release_go_by_the_policy(
    hip: StandIn, tmp_path: Path, installed: Path
) -> None:
    used = kernels_from(installed.parent, "mono_kernels")
    store = store_of(tmp_path / "s", planned(V41).keys, used)
    assert serving_of(store).prepare(config(V41)) is not None
    (installed / "layer.py").write_text("# another\n")
    with pytest.raises(
        KernelSourcesDiffer, match=r"mono_kernels/layer\.py: its content is another"
    ):
        serving_of(store).prepare(config(V41))
    assert serving_of(store, MONO_POLICY="stock").prepare(config(V41)) is None


def test_which_helpers_of_aiter_the_builder_had_does_not_matter(
    hip: StandIn, tmp_path: Path, installed: Path
) -> None:
    from dataclasses import replace

    used = kernels_from(installed.parent, "mono_kernels")
    helper = ("aiter/ops/flydsl/kernels/buffer_ops.py", "0" * 64)
    used = replace(used, sources=tuple(sorted((*used.sources, helper))))
    store = store_of(tmp_path / "s", planned(V41).keys, used)
    assert serving_of(store).prepare(config(V41)) is not None


def test_the_deployments_description_is_left_where_it_was_asked_for(
    hip: StandIn, store: Path, tmp_path: Path
) -> None:
    file = tmp_path / "config.json"
    serving = serving_of(store, MONO_CONFIG_FILE=str(file))
    serving.prepare(config(V41))
    written = json.loads(file.read_text())
    facts = read_engine_config(written, {})
    assert facts == read_engine_config(CONFIGS[V41], {})
    file.unlink()
    serving.prepare(config(V41))
    assert not file.exists()


def test_the_description_is_written_before_a_store_is_refused(hip: StandIn, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    serving = serving_of(tmp_path / "none", MONO_CONFIG_FILE=str(file))
    with pytest.raises(StoreMissing):
        serving.prepare(config(V41))
    assert json.loads(file.read_text())["kernel_config"]["monokernel"] is True


@pytest.mark.parametrize("name", ["none/config.json", "directory", "/"])
def test_a_description_that_cannot_be_written_is_a_warning(
    hip: StandIn, store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    (tmp_path / "directory").mkdir()
    file, before = tmp_path / name, sorted(tmp_path.iterdir())
    assert serving_of(store, MONO_CONFIG_FILE=str(file)).prepare(config(V41)) is not None
    (line,) = messages(caplog, "MONO_CONFIG_FILE")
    assert str(file) in line
    # Nothing half-written is left beside it.
    assert sorted(tmp_path.iterdir()) == before


def test_closing_releases_everything(hip: StandIn, store: Path) -> None:
    serving = serving_of(store)
    serving.prepare(config(V41))
    serving.close()
    assert hip.alive("modules") == 0
    assert serving.state(V41) is None
