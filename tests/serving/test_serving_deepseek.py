"""DeepSeek layers of the duck-typed engine: which steps run prebuilt launches, and which are declined."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from serving_kit import V4, V41, change, config, planned, ranks_of, rows, serving_of, store_of
from standin_hip import StandIn

from mono_runtime.errors import LaunchMissing
from mono_runtime.hooks.serving import Serving
from mono_runtime.launch_key import LaunchKey

DECODE, LAYER, RUNNER = (f"{V41}.{name}" for name in ("mono_decode", "mono.layer", "mono.runner"))
ANY = object()


class Server:
    """One rank's model: the engine's modules, and a layer that its hook created."""

    def __init__(self, serving: Serving, family: str, **sections: Any) -> None:
        self.serving = serving
        self.modules = change(serving, family)
        package = V41 if family == "deepseek_v41" else V4
        self.decode: ModuleType = self.modules[f"{package}.mono_decode"]
        self.layer = self.modules[f"{package}.mono.layer"]
        self.runner = self.modules[f"{package}.mono.runner"]
        __import__("vllm.distributed")
        ranks_of(None)
        self.mono = self.decode.MonoDecodeLayer.create(
            SimpleNamespace(), config(family, **sections)
        )

    def step(
        self,
        count: int,
        *,
        ratio: int = 2,
        residual: object = ANY,
        index: bool = False,
        engram: object = None,
        hashes: object = None,
    ) -> Any:
        """What V4.1's layer gives for a step of ``count`` rows."""
        attention = SimpleNamespace(compress_ratio=ratio, indexer=ANY if index else None)
        layer = SimpleNamespace(attn=attention, engram=engram, tp=4)
        return self.mono(layer, rows(count), None, residual, None, None, None, hashes)

    def ffn(self, count: int, experts: int = 384) -> Any:
        gate = SimpleNamespace(weight=SimpleNamespace(shape=(experts, 5120)))
        layer = SimpleNamespace(ffn=SimpleNamespace(gate=gate))
        return self.mono.ffn(layer, rows(count), None, None, None, None)


@pytest.fixture
def server(hip: StandIn, engine: Callable[[str], object], tmp_path: Path) -> Callable[..., Server]:
    """Builds a model over a store with some of the keys that its server asks for."""

    def build(
        family: str = "deepseek_v41",
        keep: Callable[[LaunchKey], bool] = lambda key: True,
        sections: dict[str, Any] | None = None,
        **variables: str,
    ) -> Server:
        keys = [k for k in planned(family, **(sections or {})).keys if keep(k)]
        serving = serving_of(store_of(tmp_path / "store", keys), **variables)
        return Server(serving, family, **(sections or {}))

    return build


def test_a_step_of_a_planned_width_launches_from_the_store(
    hip: StandIn, server: Callable[..., Server]
) -> None:
    made = server()
    loads = hip.calls("hipModuleLoadData")
    assert made.step(6) == "mono"
    assert made.step(12, index=True) == "mono"
    assert made.step(6, ratio=0, residual=None) == "mono"
    assert [r.symbol for r in hip.launches()] == ["k1_6"] * 2 + ["k1_12"] * 2 + ["k1_6"] * 2
    assert hip.calls("hipModuleLoadData") == loads
    assert (made.layer.compiled, made.runner.cache_calls) == ([], [])


def test_a_width_that_nobody_planned_is_declined_and_said_once(
    hip: StandIn, server: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    made = server()
    caplog.clear()
    for _ in range(3):
        assert made.step(7) is None
    (said,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert said.startswith("deepseek_v41: deepseek_v41/k1 gfx950 ")
    assert "tokens=7" in said
    assert said.endswith("are not loaded, so the engine's own path runs such steps")
    assert len(made.decode.skipped) == 3
    assert hip.launches() == []
    assert made.layer.compiled == []
    snapshot = made.serving.loader()._context.counters.snapshot()
    assert snapshot["fallbacks"] == {"strict": {"step": 3}}


def test_a_variant_that_nobody_planned_is_declined_at_a_planned_width(
    hip: StandIn, server: Callable[..., Server]
) -> None:
    made = server()
    # After an Engram the residual is settled; no layer of this model selects keys there without ratio 2.
    assert made.step(6, ratio=1, engram=ANY, hashes=ANY) is None
    assert "fold=false" in made.decode.skipped[0]
    assert "ratio=1" in made.decode.skipped[0]
    # Without the step's hashes the same layer folds.
    assert made.step(6, ratio=1, engram=ANY) == "mono"


def test_a_step_that_takes_the_engines_path_anyway_gives_the_engines_reason(
    server: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    made = server()
    made.decode.own_reason = "not a decode-only step"
    caplog.clear()
    assert made.step(7) is None
    assert made.decode.skipped == ["not a decode-only step"]
    assert caplog.records == []


def test_prefills_leave_nothing_behind(
    server: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    made = server()
    made.decode.own_reason = "8192 rows"
    caplog.clear()
    for count in range(49, 8192, 97):
        assert made.step(count) is None
        assert made.ffn(count) is None
    prepared = made.serving.ready("deepseek_v41")
    assert prepared is not None
    assert (prepared._lacking, caplog.records) == ({}, [])


def test_stock_declines_the_widths_that_the_store_lacks(
    hip: StandIn, server: Callable[..., Server]
) -> None:
    made = server(keep=lambda key: key.values["tokens"] == 6, MONO_POLICY="stock")
    assert made.step(6) == "mono"
    assert made.step(12) is None
    assert made.layer.compiled == []


def test_stock_without_a_usable_width_creates_no_layers(server: Callable[..., Server]) -> None:
    made = server(keep=lambda key: key.launch == "k1", MONO_POLICY="stock")
    assert made.mono is None
    # The engine's own checks and its copies of weights were not begun.
    assert made.decode.created == []


def test_jit_compiles_what_is_missing_and_nothing_else(
    hip: StandIn, server: Callable[..., Server]
) -> None:
    made = server(keep=lambda key: key.values["tokens"] == 6, MONO_POLICY="jit")
    assert made.step(6) == "mono"
    assert (made.layer.compiled, made.runner.cache_calls) == ([], [])
    for _ in range(2):
        assert made.step(12) == "mono"
    assert [(name, key.tokens) for name, key in made.layer.compiled] == [("k1", 12), ("k2", 12)]
    # FlyDSL's cache is made writable when something is compiled, and not before.
    assert len(made.runner.cache_calls) == 2
    assert [r.symbol for r in hip.launches()] == ["k1_6", "k1_6"]


def test_strict_raises_at_model_load_and_not_in_a_step(server: Callable[..., Server]) -> None:
    with pytest.raises(LaunchMissing, match="12 of 24 launches could not be loaded"):
        server(keep=lambda key: key.values["tokens"] == 6)


def test_an_ffn_launch_is_declined_by_its_rows_and_routing(
    hip: StandIn, server: Callable[..., Server]
) -> None:
    sections = {"attention_config": None}
    made = server(sections=sections)
    assert {k.launch for k in planned("deepseek_v41", **sections).keys} == {"k1", "k2", "ffn"}
    assert made.ffn(6) == "mono"
    assert made.ffn(7) is None
    assert made.ffn(6, experts=128) is None
    assert [("tokens=7" in s, "experts=128" in s) for s in made.decode.skipped] == [
        (True, False),
        (False, True),
    ]


def test_a_server_without_mono_kernels_is_left_as_it_is(
    hip: StandIn, server: Callable[..., Server]
) -> None:
    made = server()
    made.serving.close()
    again = Server(made.serving, "deepseek_v41", kernel_config={"monokernel": False})
    assert again.mono is None
    assert len(again.decode.created) == 2


def test_a_new_field_of_the_engines_key_is_named_when_the_model_is_built(
    hip: StandIn, engine: Callable[[str], Any], tmp_path: Path
) -> None:
    _give_the_key_a_field(engine(LAYER))
    store = store_of(tmp_path / "store", planned("deepseek_v41").keys)
    with pytest.raises(LaunchMissing, match=r"wide \(= False\) is not known here"):
        Server(serving_of(store), "deepseek_v41")
    assert hip.calls("hipModuleLoadData") == 0


def test_a_new_field_of_the_engines_key_is_declined_under_stock(
    hip: StandIn, engine: Callable[[str], Any], tmp_path: Path
) -> None:
    _give_the_key_a_field(engine(LAYER))
    store = store_of(tmp_path / "store", planned("deepseek_v41").keys)
    assert Server(serving_of(store, MONO_POLICY="stock"), "deepseek_v41").mono is None


def test_a_new_field_of_the_engines_key_is_compiled_under_jit(
    hip: StandIn, engine: Callable[[str], Any], tmp_path: Path
) -> None:
    _give_the_key_a_field(engine(LAYER))
    store = store_of(tmp_path / "store", planned("deepseek_v41").keys)
    made = Server(serving_of(store, MONO_POLICY="jit"), "deepseek_v41")
    # The runner takes the class by name from the module that defines it.
    made.runner.MonoBuild = made.layer.MonoBuild
    assert made.step(6) == "mono"
    assert [name for name, _ in made.layer.compiled] == ["k1", "k2"]
    assert hip.launches() == []


def test_a_module_that_cannot_be_changed_when_the_model_is_built_leaves_the_engine_alone(
    hip: StandIn, engine: Callable[[str], Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from mono_runtime.hooks.plugin import changes

    store = store_of(tmp_path / "store", planned("deepseek_v41").keys)
    serving = serving_of(store)
    changing = changes(serving)
    decode, runner = engine(DECODE), engine(RUNNER)
    engine("vllm.distributed")
    ranks_of(None)
    changing[DECODE](decode)
    layer = decode.MonoDecodeLayer.create(SimpleNamespace(), config("deepseek_v41"))
    assert serving.ready("deepseek_v41") is not None
    del runner._ensure_writable_flydsl_cache
    changing[RUNNER](runner)
    assert serving.leaves_alone("deepseek_v41")
    assert "has no _ensure_writable_flydsl_cache" in caplog.messages[-1]
    assert layer is not None


def _give_the_key_a_field(layer: Any) -> None:
    from dataclasses import make_dataclass

    bases = (layer.MonoBuild,)
    layer.MonoBuild = make_dataclass("MonoBuild", [("wide", bool, False)], bases=bases, frozen=True)


def test_a_field_that_the_engines_key_lost_is_named_as_well(
    hip: StandIn, engine: Callable[[str], Any], tmp_path: Path
) -> None:
    from dataclasses import make_dataclass

    layer = engine(LAYER)
    kept = [f for f in layer.MonoBuild.__dataclass_fields__.values() if f.name != "fold"]
    layer.MonoBuild = make_dataclass(
        "MonoBuild", [(f.name, f.type, f.default) for f in kept[3:]], frozen=True
    )
    store = store_of(tmp_path / "store", planned("deepseek_v41").keys)
    with pytest.raises(LaunchMissing, match="fold is not among its fields"):
        Server(serving_of(store), "deepseek_v41")


V4_LAYERS = [
    (4, True, False),
    (4, True, True),
    (128, True, False),
    (128, True, True),
    (128, False, True),
]


@pytest.mark.parametrize(("ratio", "fold", "hashed"), V4_LAYERS)
def test_each_kind_of_v4s_layers_is_served(
    hip: StandIn, server: Callable[..., Server], ratio: int, fold: bool, hashed: bool
) -> None:
    made = server("deepseek_v4")
    assert _v4_step(made, 7, ratio, fold, hashed) == "mono"
    assert made.layer.compiled == []
    assert len(hip.launches()) == 2


def test_v4_declines_what_is_not_planned(hip: StandIn, server: Callable[..., Server]) -> None:
    made = server("deepseek_v4")
    assert _v4_step(made, 8, 4, True, False) is None
    assert _v4_step(made, 7, 4, False, False) is None
    assert ["fold=false" in why for why in made.decode.skipped] == [False, True]
    assert made.layer.compiled == []


def _v4_step(made: Server, count: int, ratio: int, fold: bool, hashed: bool) -> Any:
    gate = SimpleNamespace(tid2eid=ANY if hashed else None)
    layer = SimpleNamespace(
        attn=SimpleNamespace(compress_ratio=ratio), ffn=SimpleNamespace(gate=gate)
    )
    return made.mono(layer, rows(count), None, None, None, None, ANY if fold else None)
