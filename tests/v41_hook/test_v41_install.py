"""The hook in vLLM's place: which layers it makes while the model is built, and what it asks for."""

from __future__ import annotations

import logging
import sys
from types import ModuleType
from types import SimpleNamespace as Object
from typing import Any

import pytest
import torch
from v41_objects import (
    HC,
    HIDDEN,
    FakeEngine,
    FakeMaker,
    FakePrepared,
    FakeServing,
    Fp8Indexer,
    Mxfp4Indexer,
    OtherIndexer,
    compressed,
    compressed_layer,
    context,
    decoder_layer,
    vllm_config,
    window,
)

from mono_runtime.errors import LaunchMissing
from mono_runtime.hooks.deepseek_v41.eligibility import DeploymentRefused
from mono_runtime.hooks.deepseek_v41.factory import LayerFactory
from mono_runtime.hooks.deepseek_v41.install import MODEL, MODULE, install
from mono_runtime.hooks.deepseek_v41.layer import MonoLayer
from mono_runtime.hooks.deepseek_v41.reload import loading_of
from mono_runtime.hooks.deepseek_v41.runner import Kind
from mono_runtime.hooks.deepseek_v41.weights import Layout


def factory(engine: FakeEngine, prepared: Any) -> LayerFactory:
    serving: Any = FakeServing(prepared)
    return LayerFactory(serving, engine, FakeMaker())


def create(
    layer: Any, prepared: Any = None, *, arch: str = "gfx950", **config: Any
) -> MonoLayer | None:
    """What is made for a layer, with launches of 6 and 12 rows unless said otherwise."""
    found = FakePrepared({6, 12}) if prepared is None else prepared
    return factory(FakeEngine(arch), found).create(layer, vllm_config(**config))


def step(layer: Any, made: MonoLayer, rows: int = 12, **given: Any) -> Any:
    """One step after the first layer."""
    engine: FakeEngine = made._rank.engine  # type: ignore[assignment]
    width = given.pop("width", 128)
    swa = window(rows, num_decode_tokens=rows, decode_swa_width=width)
    engine.current = context(layer, swa, compressed())
    return made(
        layer,
        torch.zeros(rows, HIDDEN),
        torch.zeros(rows, dtype=torch.int64),
        torch.zeros(rows, HC, HIDDEN),
        torch.zeros(rows, HC, 1),
        torch.zeros(rows, HC, HC),
        torch.zeros(rows, HC),
        **given,
    )


@pytest.fixture
def _weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers without weights; what taking them does has tests of its own."""
    monkeypatch.setattr(
        "mono_runtime.hooks.deepseek_v41.factory.weights_of", lambda layer, layout: layout
    )


def test_without_the_switch_nothing_is_read_or_asked() -> None:
    engine, serving = FakeEngine("gfx90a"), FakeServing(None)
    made = LayerFactory(serving, engine, FakeMaker())
    assert made.create(Object(), Object(kernel_config=Object(monokernel=False))) is None
    assert engine.told == ["monokernel False"]
    assert serving.asked == []


def test_a_deployment_that_cannot_run_is_an_error_before_anything_is_loaded() -> None:
    engine, serving = FakeEngine("gfx950", tp=8, compute_units=64), FakeServing(None)
    made = LayerFactory(serving, engine, FakeMaker())
    with pytest.raises(DeploymentRefused) as caught:
        made.create(decoder_layer(), vllm_config(parallel_config__enable_eplb=True))
    assert [w in caught.value.what for w in ("size is 8", "64 compute units", "EPLB")] == [True] * 3
    assert serving.asked == []


def test_launches_are_prepared_with_the_ranks_on_the_workers_device() -> None:
    engine = FakeEngine()
    serving: Any = FakeServing(FakePrepared({6}))
    made = LayerFactory(serving, engine, FakeMaker())
    made.create(decoder_layer(), vllm_config())
    assert serving.asked == [{"group": "the ranks", "device": 3, "family": "deepseek_v41"}]


def test_a_deployment_that_is_declined_leaves_every_layer_to_the_engine() -> None:
    made = factory(FakeEngine(), None)
    layers = [decoder_layer(0), decoder_layer(5), decoder_layer(40)]
    assert [made.create(layer, vllm_config()) for layer in layers] == [None] * 3
    assert [loading_of(layer) for layer in layers] == [None] * 3


@pytest.mark.parametrize(
    ("arch", "number", "changed", "shape"),
    [
        ("gfx950", 5, {}, (False, False, 384, 6, 128)),
        ("gfx950", 40, {}, (False, True, 128, 3, 192)),
        ("gfx942", 40, {}, (True, False, 128, 3, 128)),
        ("gfx950", 5, {"attn__kv_mxfp8": True}, (True, False, 384, 6, 128)),
    ],
)
def test_layers_are_made_as_they_are_decided(
    arch: str, number: int, changed: dict[str, Any], shape: tuple[Any, ...]
) -> None:
    made = create(decoder_layer(number, **changed), arch=arch)
    assert made is not None
    assert (made.ffn_only, made.draft, made.experts, made.topk, made.swa_width) == shape


def test_a_layer_outside_the_rules_is_left_to_the_engine_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "mono_runtime")
    made = factory(FakeEngine(), FakePrepared({6}))
    for _ in range(3):
        layer = decoder_layer(ffn__scoring_func="sigmoid", ffn__renormalize=False)
        assert made.create(layer, vllm_config()) is None
    (record,) = caplog.records
    assert "sigmoid" in record.getMessage()
    assert "renormalised" in record.getMessage()


def test_gfx942_gets_its_top_k_and_its_own_copies_when_weights_are_loaded() -> None:
    engine, layer = FakeEngine("gfx942"), decoder_layer()
    made = factory(engine, FakePrepared({6}))
    assert made.create(layer, vllm_config())
    assert engine.told == ["monokernel True", "topk"]
    loading = loading_of(layer)
    assert loading is not None
    assert loading.layout == Layout("gfx942", 4, 384, whole=True)
    drafted = decoder_layer(40)
    made.create(drafted, vllm_config())
    found = loading_of(drafted)
    assert found is not None
    assert found.layout == Layout("gfx942", 4, 128, whole=False)


def asked_keys(prepared: FakePrepared, layer: Any, arch: str) -> set[tuple[Any, ...]]:
    """The launches of 6 rows that a layer needs before it serves that width, found by leaving each out."""
    seen: set[tuple[Any, ...]] = set()

    def lacks(name: str, rows: int, variant: dict[str, Any]) -> bool:
        seen.add((name, *sorted(variant.items())))
        return False

    prepared.lacks = lacks
    create(layer, prepared, arch=arch)
    return seen


MODEL_KIND = {"experts": 384, "topk": 6, "ug_groups": 2, "swa_width": 128}
DRAFT_KIND = {"experts": 128, "topk": 3, "ug_groups": 1, "swa_width": 192}


def launches(
    kind: dict[str, Any], ratio: int, *folds: bool, **index: bool | None
) -> set[tuple[Any, ...]]:
    found = set()
    for name, value in index.items():
        for fold in folds:
            variant = (
                {} if value is None else {**kind, "ratio": ratio, "fold": fold, "index": value}
            )
            found.add((name, *sorted(variant.items())))
    return found


@pytest.mark.parametrize(
    ("arch", "layer", "needed"),
    [
        ("gfx950", decoder_layer(5), launches(MODEL_KIND, 0, True, k1=False, k2=False)),
        ("gfx950", decoder_layer(0), launches(MODEL_KIND, 0, False, k1=False, k2=False)),
        (
            "gfx950",
            compressed_layer(14, 2, attn__indexer=Mxfp4Indexer(), engram=object()),
            launches(MODEL_KIND, 2, True, False, k1=True, k2=True),
        ),
        ("gfx950", decoder_layer(40), launches(DRAFT_KIND, 0, False, k1=False, k2=False)),
        ("gfx950", compressed_layer(5, 2), launches(MODEL_KIND, 2, True, k1=False, k2=False)),
        (
            "gfx950",
            compressed_layer(8, 2, attn__indexer=Mxfp4Indexer()),
            launches(MODEL_KIND, 2, True, k1=True, k2=True),
        ),
        (
            "gfx942",
            compressed_layer(20, 1, attn__indexer=Fp8Indexer()),
            launches(MODEL_KIND, 1, True, k1=True, k2=False, keylist=None),
        ),
        ("gfx950", decoder_layer(41), launches(DRAFT_KIND, 0, True, k1=False, k2=False)),
        ("gfx942", decoder_layer(41), {("ffn", ("experts", 128), ("topk", 3))}),
        (
            "gfx950",
            decoder_layer(5, attn__kv_cache_dtype="bfloat16"),
            {("ffn", ("experts", 384), ("topk", 6))},
        ),
    ],
)
def test_a_layer_needs_these_launches(arch: str, layer: Any, needed: set[tuple[Any, ...]]) -> None:
    assert asked_keys(FakePrepared({6}), layer, arch) == needed


@pytest.mark.usefixtures("_weights")
def test_a_width_that_lacks_one_launch_of_the_layer_is_not_served() -> None:
    prepared = FakePrepared(
        {6, 12, 18}, lambda name, rows, variant: (name, rows) == ("k2", 12) and variant["fold"]
    )
    layer = compressed_layer()
    made = create(layer, prepared)
    assert made is not None
    assert step(layer, made, 12) is None
    assert prepared.declined == ["the store has no launches for a step of 12 rows"]
    assert step(layer, made, 6) is not None
    assert step(layer, made, 18) is not None
    assert step(layer, made, 24) is None
    assert prepared.asked == []


@pytest.mark.parametrize("number", [0, 40])
def test_a_first_layer_needs_no_launch_that_folds(number: int) -> None:
    prepared = FakePrepared({6}, lambda name, rows, variant: variant["fold"])
    made = create(decoder_layer(number), prepared)
    assert made is not None
    assert prepared.asked == []
    assert create(decoder_layer(number + 1), FakePrepared({6}, prepared.lacks)) is None


@pytest.mark.usefixtures("_weights")
def test_an_engram_layer_needs_no_launch_that_folds_while_it_has_hashes() -> None:
    prepared = FakePrepared({12}, lambda name, rows, variant: variant["fold"])

    class Engram:
        layer_hash_index = 0

        def __call__(self, residual: Any, *_: Any) -> Any:
            return residual

    layer = compressed_layer(14, engram=Engram(), mhc_post=lambda x, residual, *_: residual)
    made = create(layer, prepared)
    assert made is not None
    assert prepared.asked == []
    hashes = torch.zeros(12, 1, dtype=torch.int64)
    assert step(layer, made, 12, engram_hashes=hashes) is not None
    assert step(layer, made, 12) is None


def test_a_layer_that_the_plan_did_not_foresee_is_what_the_policy_says_of_a_miss(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "mono_runtime")
    layer = decoder_layer(attn__indexer=OtherIndexer())
    prepared = FakePrepared({6, 12}, lambda name, rows, variant: name == "ffn")
    # ``stock``: asked for, not there, and every rank has come to the same.
    assert create(layer, prepared) is None
    assert [(name, rows) for name, rows, _ in prepared.asked] == [("ffn", 6), ("ffn", 12)]
    assert prepared.loads == 1
    assert loading_of(layer) is None
    assert [r.getMessage() for r in caplog.records] == [
        "deepseek_v41: the engine runs some layers itself: no store has their launches"
    ]
    # ``strict``
    prepared.miss = LaunchMissing("no ffn in the store")
    with pytest.raises(LaunchMissing, match="no ffn"):
        create(layer, prepared)


def test_what_layers_have_in_common_is_asked_for_once() -> None:
    prepared = FakePrepared({6}, lambda name, rows, variant: True)
    made = factory(FakeEngine(), prepared)
    for number in range(2, 8):
        assert made.create(decoder_layer(number), vllm_config()) is None
    assert [name for name, _, _ in prepared.asked] == ["k1", "k2"]
    assert prepared.loads == 1


def test_launches_that_the_ranks_do_not_have_alike_serve_nobody() -> None:
    prepared = FakePrepared({6}, lambda name, rows, variant: False)
    # Loaded on this rank, and not on another: ``stock`` answers no.
    prepared.alike = False
    prepared.lacks = lambda name, rows, variant: prepared.loads == 0
    assert create(decoder_layer(attn__indexer=OtherIndexer()), prepared) is None
    assert prepared.loads == 1


@pytest.mark.usefixtures("_weights")
def test_layers_of_one_model_share_a_runner_and_a_count() -> None:
    maker, serving = FakeMaker(), FakeServing(FakePrepared({12}))
    made = LayerFactory(serving, FakeEngine(), maker)  # type: ignore[arg-type]
    layers = [decoder_layer(n) for n in (5, 6, 41)]
    mono = [made.create(layer, vllm_config()) for layer in layers]
    for layer, one, width in zip(layers, mono, (128, 128, 192), strict=True):
        assert one is not None
        step(layer, one, 12, width=width)
        step(layer, one, 7, width=width)
    declined = serving.prepared.store.counters.snapshot()["steps_declined"]
    assert declined == {"deepseek_v41": {"the store has no launches for a step of 7 rows": 3}}
    runners = maker.made
    assert [r.kind for r in runners] == [Kind(384, 6, 2, 128), Kind(128, 3, 1, 192)]
    assert [len(r.calls) for r in runners] == [2, 1]
    made.close()
    assert maker.closed
    assert [r.closed for r in runners] == [True, True]


class VllmsOwn:
    """vLLM's MonoDecodeLayer."""


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, ModuleType]:
    """vLLM's module of the hook, and its model's, imported and with the name that it took from there."""
    module, model = ModuleType(MODULE), ModuleType(MODEL)
    vars(module)["MonoDecodeLayer"] = VllmsOwn
    vars(model)["MonoDecodeLayer"] = VllmsOwn
    monkeypatch.setitem(sys.modules, MODEL, model)
    return module, model


def test_it_takes_the_place_of_vllms_class_wherever_that_was_imported(
    modules: tuple[ModuleType, ModuleType],
) -> None:
    module, model = modules
    serving: Any = FakeServing(FakePrepared({6}))
    installed = install(module, serving, engine=FakeEngine())  # type: ignore[arg-type]
    assert vars(module)["MonoDecodeLayer"] is installed
    assert vars(model)["MonoDecodeLayer"] is installed
    layer = decoder_layer()
    assert isinstance(vars(model)["MonoDecodeLayer"].create(layer, vllm_config()), MonoLayer)


def test_doing_it_again_changes_nothing(modules: tuple[ModuleType, ModuleType]) -> None:
    module, model = modules
    serving: Any = FakeServing(None)
    first = install(module, serving, engine=FakeEngine())  # type: ignore[arg-type]
    assert install(module, FakeServing(None)) is first  # type: ignore[arg-type]
    assert vars(model)["MonoDecodeLayer"] is first


def test_a_model_that_is_imported_later_takes_it_from_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, MODEL, raising=False)
    module = ModuleType(MODULE)
    vars(module)["MonoDecodeLayer"] = VllmsOwn
    serving: Any = FakeServing(None)
    installed = install(module, serving, engine=FakeEngine())  # type: ignore[arg-type]
    assert vars(module)["MonoDecodeLayer"] is installed
    assert MODEL not in sys.modules


def test_something_else_of_that_name_is_left_alone(modules: tuple[ModuleType, ModuleType]) -> None:
    module, model = modules
    vars(model)["MonoDecodeLayer"] = "another hook's"
    serving: Any = FakeServing(None)
    install(module, serving, engine=FakeEngine())  # type: ignore[arg-type]
    assert vars(model)["MonoDecodeLayer"] == "another hook's"
