"""Our layers on the real runner: it asks for the launches that a layer was made for, in a step's order."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
import v41_runner_kit as kit
from v41_objects import (
    FakeEngine,
    FakeMaker,
    FakePrepared,
    FakeServing,
    Fp8Indexer,
    Mxfp4Indexer,
    compressed,
    compressed_layer,
    context,
    decoder_layer,
    vllm_config,
    window,
)

from mono_runtime.errors import CaptureActive
from mono_runtime.hooks.deepseek_v41.factory import LayerFactory

ROWS = 12


class RunnerMaker(FakeMaker):
    """Makes real runners over launches that only record."""

    def __init__(self, arch: str) -> None:
        super().__init__()
        self.arch = arch
        self.benches: list[kit.Bench] = []

    def make(self, prepared: Any, engine: Any, kind: Any) -> Any:
        self.benches.append(kit.Bench(self.arch, kind=kind))
        return self.benches[-1].runner


class Server:
    """A layer on a rank whose store has everything; the keys that it was made for."""

    def __init__(
        self, arch: str, layer: Any, monkeypatch: pytest.MonkeyPatch, width: int = 128
    ) -> None:
        monkeypatch.setattr(
            "mono_runtime.hooks.deepseek_v41.factory.weights_of",
            lambda layer, layout: kit.weights(
                layer.attn.compress_ratio, whole=layout.whole, experts=layout.experts
            ),
        )
        self.engine, self.maker, self.layer = FakeEngine(arch), RunnerMaker(arch), layer
        self.needed: set[tuple[Any, ...]] = set()
        prepared = FakePrepared({ROWS, 6})
        prepared.lacks = lambda name, rows, variant: self.needed.add(flat(name, variant))
        serving: Any = FakeServing(prepared)
        made = LayerFactory(serving, self.engine, self.maker).create(layer, vllm_config())
        assert made is not None
        self.mono, self._width = made, width

    def step(self, rows: int = ROWS, *, first: bool = False, **given: Any) -> Any:
        """One step; with an embedding if it is the first layer's."""
        swa = window(rows, num_decode_tokens=rows, decode_swa_width=self._width)
        swa.decode_swa_indices = torch.zeros(rows, 1, self._width, dtype=torch.int32)
        self.engine.current = context(self.layer, swa, compressed())
        of = kit.given(rows)
        x, *others = of.activations
        if self.mono.ffn_only:
            return self.mono.ffn(self.layer, x, *others)
        if first:
            x = x.unsqueeze(1).repeat(1, 4, 1) if self.mono.draft else x
            others = [None] * 4  # type: ignore[list-item]
        return self.mono(self.layer, x, of.step.positions, *others, **given)


def flat(name: str, variant: dict[str, Any]) -> tuple[Any, ...]:
    return (name, *sorted(variant.items()))


def indexer(kind: type) -> Any:
    made: Any = kind()
    made.weights_proj = lambda normed: ("heads", None)
    made.forward_q = lambda *given: ("query", None, "weights")
    made.indexer_op = lambda *given: None
    return made


@pytest.mark.parametrize(
    ("arch", "layer", "width", "first", "order"),
    [
        ("gfx950", decoder_layer(5), 128, False, ["k1", "k2"]),
        ("gfx950", decoder_layer(0), 128, True, ["k1", "k2"]),
        ("gfx950", compressed_layer(5, 1), 128, False, ["k1", "k2"]),
        (
            "gfx950",
            compressed_layer(8, 2, attn__indexer=indexer(Mxfp4Indexer)),
            128,
            False,
            ["k1", "k2"],
        ),
        (
            "gfx942",
            compressed_layer(8, 2, attn__indexer=indexer(Fp8Indexer)),
            128,
            False,
            ["k1", "keylist", "k2"],
        ),
        ("gfx950", decoder_layer(40), 192, True, ["k1", "k2"]),
        ("gfx950", decoder_layer(41), 192, False, ["k1", "k2"]),
        ("gfx942", decoder_layer(41), 128, False, ["ffn"]),
        ("gfx950", decoder_layer(5, attn__kv_mxfp8=True), 128, False, ["ffn"]),
    ],
)
def test_a_step_asks_for_what_the_layer_was_made_for(
    arch: str,
    layer: Any,
    width: int,
    first: bool,
    order: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server(arch, layer, monkeypatch, width)
    outputs = server.step(first=first)
    assert outputs.out.shape == (ROWS, 5120)
    (bench,) = server.maker.benches
    assert bench.order() == order
    assert {flat(name, variant) for name, _, variant in bench.source.asked} == server.needed


def test_an_engram_layer_asks_for_both_of_its_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    class Engram:
        layer_hash_index = 0

        def __call__(self, residual: Any, *_: Any) -> Any:
            return residual

    layer = decoder_layer(1, engram=Engram(), mhc_post=lambda x, residual, *_: residual)
    server = Server("gfx950", layer, monkeypatch)
    server.step()
    server.step(engram_hashes=torch.zeros(ROWS, 1, dtype=torch.int64))
    (bench,) = server.maker.benches
    asked = {flat(name, variant) for name, _, variant in bench.source.asked}
    assert asked == server.needed
    assert [c.variant["fold"] for c in bench.calls()] == [True, True, False, False]


def test_a_capture_that_first_meets_a_width_is_an_error_and_launches_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server("gfx950", decoder_layer(5), monkeypatch)
    server.step(6)
    (bench,) = server.maker.benches
    bench.tensors.records_graph = True
    with pytest.raises(CaptureActive, match="step width 12"):
        server.step(12)
    assert [c.rows for c in bench.calls()] == [6, 6]
    # The width that ran eagerly is captured; the other one after it ran eagerly too.
    server.step(6)
    bench.tensors.records_graph = False
    server.step(12)
    bench.tensors.records_graph = True
    server.step(12)
    assert [c.rows for c in bench.calls()] == [6, 6, 6, 6, 12, 12, 12, 12]


def test_a_reload_binds_the_launches_to_the_new_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("gfx950", decoder_layer(5), monkeypatch)
    server.step()
    experts = server.layer.ffn.experts.routed_experts
    for name in ("w13_weight", "w13_weight_scale", "w2_weight", "w2_weight_scale"):
        setattr(experts, name, torch.zeros(1, 1280, 640, dtype=torch.uint8))
    # vLLM loads the experts, for the first time and again.
    for _ in range(2):
        experts.quant_method.process_weights_after_loading(experts)
    server.step()
    server.step()
    first, second, third = (
        c.arguments["w13"] for c in server.maker.benches[0].calls() if c.name == "k2"
    )
    assert first != second == third


def test_a_cache_that_the_engine_lets_go_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    # As after vLLM's profile of its graphs, which has a cache of its own: the real one needs the memory.
    layer = compressed_layer(5, 1)
    server = Server("gfx950", layer, monkeypatch)
    caches = bound_caches(layer)
    server.step()
    server.step(6)
    assert [cache() is None for cache in caches] == [False, False]
    layer.attn.swa_cache_layer.kv_cache = torch.tensor([])
    layer.attn._compressed_kv_cache = lambda: torch.tensor([])
    assert [cache() is None for cache in caches] == [True, True]

    caches = bound_caches(layer)
    server.step()
    (bench,) = server.maker.benches
    k2 = bench.calls()[-1].arguments
    assert [k2[name] for name in ("swa", "comp")] == [c().data_ptr() for c in caches]


def bound_caches(layer: Any) -> list[Any]:
    """Let the engine bind new caches; each one's memory as long as somebody has it."""
    attn = layer.attn
    window_cache = torch.zeros(3, 32, 584, dtype=torch.uint8)
    source = torch.zeros(4, 64, 584, dtype=torch.uint8)
    attn.swa_cache_layer.kv_cache = window_cache
    attn._compressed_kv_cache = lambda: source
    return [weakref.ref(window_cache.untyped_storage()), weakref.ref(source.untyped_storage())]


@pytest.mark.parametrize("changed", [{}, {"attn__kv_mxfp8": True}], ids=["whole", "ffn"])
def test_a_layer_that_the_engine_lets_go_leaves_no_weights(
    changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As when an engine that runs in the caller's process is shut down; the rank's runners outlive it.
    taken: list[Any] = []
    server = Server("gfx950", decoder_layer(5, **changed), monkeypatch)
    from_kit = server.mono._weights._take

    def take(*given: Any) -> Any:
        weights = from_kit(*given)
        taken.append(weakref.ref(weights.ffn_w))
        return weights

    server.mono._weights._take = take
    server.step()
    server.mono._weights._loading.loads += 1
    server.step()
    gc.collect()
    assert [weight() is None for weight in taken] == [True, False]
    del server.mono, server.layer
    gc.collect()
    assert [weight() is None for weight in taken] == [True, True]
