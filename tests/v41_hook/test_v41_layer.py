"""A layer's steps: what the runner is given at vLLM's two boundaries, and when the engine runs instead."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace as Object
from typing import Any

import pytest
import torch
from v41_objects import (
    HC,
    HIDDEN,
    FakeEngine,
    FakeRunner,
    Mode,
    Mxfp4Indexer,
    compressed,
    compressed_layer,
    context,
    decoder_layer,
    window,
)

from mono_runtime.counters import Counters
from mono_runtime.errors import CaptureActive
from mono_runtime.hooks.deepseek_v41.eligibility import LayerDecision, Path
from mono_runtime.hooks.deepseek_v41.facts import StepLimits
from mono_runtime.hooks.deepseek_v41.layer import CurrentWeights, MonoLayer, Rank, Runners
from mono_runtime.hooks.deepseek_v41.report import StepReport
from mono_runtime.hooks.deepseek_v41.runner import Kind

WHOLE = LayerDecision(Path.WHOLE)
FFN = LayerDecision(Path.FFN, ("a reason",))
DRAFT = LayerDecision(Path.WHOLE, draft=True, experts=128, topk=3, swa_width=192)
LIMITS = StepLimits(48, frozenset({12}))
ROWS = 12


class Setting:
    """A rank with layers: its engine, the runners that were made, and what was reported."""

    def __init__(self, arch: str = "gfx950") -> None:
        self.arch = arch
        self.engine = FakeEngine(arch)
        self.made: list[FakeRunner] = []
        self.lacking: list[str] = []
        self.loading = Object(loads=1, layout="a layout")
        self.taken: list[Any] = []
        self.counters = Counters()
        self.rank = Rank(
            self.engine,
            Runners(self._make, self.engine),
            StepReport(self.lacking.append, self.counters),
        )

    def declined(self) -> dict[str, int]:
        """Layer steps that the engine ran, by reason."""
        return self.counters.snapshot()["steps_declined"]["deepseek_v41"]

    def _make(self, kind: Kind) -> Any:
        self.made.append(FakeRunner(kind))
        return self.made[-1]

    def _take(self, layer: Any, layout: Any) -> Any:
        self.taken.append((layer, layout))
        return f"weights {len(self.taken)}"

    def layer(
        self,
        decision: LayerDecision = WHOLE,
        limits: StepLimits = LIMITS,
        unfolded: StepLimits | None = None,
    ) -> MonoLayer:
        weights = CurrentWeights(self.loading, self._take)  # type: ignore[arg-type]
        both = {True: limits, False: unfolded or limits}
        return MonoLayer(self.rank, decision, self.arch, both, weights)

    def step(self, layer: Any, swa: Any = None, far: Any = None, **changed: Any) -> None:
        """The forward pass that runs from now on."""
        self.engine.current = context(layer, swa or window(ROWS), far, **changed)


def activations(rows: int = ROWS) -> dict[str, torch.Tensor]:
    """What a layer after the first is given."""
    return {
        "x": torch.randn(rows, HIDDEN),
        "positions": torch.arange(rows),
        "residual": torch.randn(rows, HC, HIDDEN),
        "post_mix": torch.randn(rows, HC, 1),
        "res_mix": torch.randn(rows, HC, HC),
        "pre_mix": torch.randn(rows, HC),
    }


def entering(x: torch.Tensor) -> dict[str, Any]:
    """What a model's first layer is given."""
    nothing = dict.fromkeys(("residual", "post_mix", "res_mix", "pre_mix"))
    return {"x": x, "positions": torch.arange(x.shape[0]), **nothing}


def test_a_layer_hands_its_inputs_and_the_steps_metadata_to_the_runner() -> None:
    setting, vllm = Setting(), decoder_layer()
    layer, swa, given = setting.layer(), window(ROWS), activations()
    setting.step(vllm, swa)
    assert layer(vllm, **given) == "outputs of call 1"
    (runner,) = setting.made
    assert runner.kind == Kind(384, 6, 2, 128)
    (call,) = runner.calls
    assert call.weights == "weights 1"
    assert setting.taken == [(vllm, "a layout")]
    assert call.fold is True
    assert call.select is None
    assert call.x is given["x"]
    assert call.residual is given["residual"]
    assert [
        m is given[n] for m, n in zip(call.mixes, ("post_mix", "res_mix", "pre_mix"), strict=True)
    ] == [
        True,
        True,
        True,
    ]
    step = call.step
    assert step.positions is given["positions"]
    assert step.slot_mapping is swa.slot_mapping
    assert step.swa_indices is swa.decode_swa_indices
    assert step.swa_lens is swa.decode_swa_lens
    assert step.token_to_req is swa.token_to_req_indices
    assert step.swa_cache.shape == (3, 32, 584)
    assert step.swa_cache.data_ptr() == vllm.attn.swa_cache_layer.kv_cache.data_ptr()
    assert step[6:] == (None, None, None)


@pytest.mark.parametrize(("ratio", "rows"), [(1, 64), (2, 64), (2, 32)])
def test_a_compressed_layer_adds_its_sources_cache(ratio: int, rows: int) -> None:
    setting, vllm, far = Setting(), compressed_layer(ratio=ratio, rows=rows), compressed(rows)
    setting.step(vllm, far=far)
    assert setting.layer(limits=replace(LIMITS, ratio=ratio))(vllm, **activations())
    step = setting.made[0].calls[0].step
    assert step.topk_indices is vllm.attn.topk_indices_buffer
    assert step.comp_block_table is far.block_table
    assert step.comp_cache.shape == (4, rows // ratio, 584)
    assert step.comp_cache.data_ptr() == vllm.attn._compressed_kv_cache().data_ptr()


def test_views_and_weights_are_the_same_objects_at_the_next_step() -> None:
    setting, vllm = Setting(), compressed_layer()
    layer = setting.layer(limits=replace(LIMITS, ratio=2))
    for _ in range(2):
        setting.step(vllm, far=compressed())
        layer(vllm, **activations())
    first, second = setting.made[0].calls
    assert first.step.swa_cache is second.step.swa_cache
    assert first.step.comp_cache is second.step.comp_cache
    assert first.weights is second.weights
    assert len(setting.taken) == 1


def test_a_cache_that_is_bound_anew_is_seen() -> None:
    setting, vllm = Setting(), decoder_layer()
    layer = setting.layer()
    setting.step(vllm)
    layer(vllm, **activations())
    vllm.attn.swa_cache_layer.kv_cache = torch.zeros(7, 32, 584, dtype=torch.uint8)
    layer(vllm, **activations())
    assert [c.step.swa_cache.shape[0] for c in setting.made[0].calls] == [3, 7]


def test_the_first_layer_takes_the_embedding_in_all_streams_and_folds_nothing() -> None:
    setting, vllm = Setting(), decoder_layer(0)
    setting.step(vllm)
    embedding = torch.randn(ROWS, HIDDEN)
    assert setting.layer()(vllm, **entering(embedding)) == "outputs of call 1"
    call = setting.made[0].calls[0]
    assert call.x is embedding
    assert call.residual.is_contiguous()
    assert torch.equal(call.residual, torch.stack([embedding] * HC, dim=1))
    assert torch.equal(call.mixes[2], torch.tensor([[1.0, 0, 0, 0]] * ROWS))
    assert call.fold is False


def test_the_drafts_first_layer_has_the_embedding_in_all_streams_already() -> None:
    setting, vllm = Setting(), decoder_layer(40)
    setting.step(vllm, window(ROWS, decode_swa_width=192))
    streams = torch.randn(ROWS, 1, HIDDEN).repeat(1, HC, 1)
    layer = setting.layer(DRAFT, replace(LIMITS, swa_width=192))
    assert layer(vllm, **entering(streams))
    call = setting.made[0].calls[0]
    assert call.residual is streams
    assert call.x.is_contiguous()
    assert torch.equal(call.x, streams[:, 0])
    assert call.fold is False


@pytest.mark.parametrize(("decision", "number", "dims"), [(WHOLE, 20, 3), (DRAFT, 40, 2)])
def test_the_first_layer_of_a_later_pipeline_stage_is_the_engines(
    decision: LayerDecision, number: int, dims: int
) -> None:
    setting, vllm = Setting(), decoder_layer(number)
    setting.step(vllm, window(ROWS, decode_swa_width=decision.swa_width))
    layer = setting.layer(decision, replace(LIMITS, swa_width=decision.swa_width))
    x = torch.zeros(ROWS, HC, HIDDEN)[:, : HC if dims == 3 else 1]
    assert layer(vllm, **entering(x if dims == 3 else x[:, 0])) is None
    assert setting.made == []


def test_the_draft_has_a_runner_of_its_own() -> None:
    setting, vllm, drafted = Setting(), decoder_layer(5), decoder_layer(41)
    setting.step(vllm)
    setting.layer()(vllm, **activations())
    setting.step(drafted, window(ROWS, decode_swa_width=192))
    layers = [setting.layer(DRAFT, replace(LIMITS, swa_width=192)) for _ in range(2)]
    for layer in layers:
        assert layer.draft
        layer(drafted, **activations())
    assert [r.kind for r in setting.made] == [Kind(384, 6, 2, 128), Kind(128, 3, 1, 192)]
    assert [len(r.calls) for r in setting.made] == [1, 2]


def engram_layer() -> tuple[Any, list[Any]]:
    """A layer whose Engram and mHC post note what they are given."""
    seen: list[Any] = []

    def post(*given: Any) -> torch.Tensor:
        seen.append(given)
        return torch.full((ROWS, HC, HIDDEN), 2.0)

    class Engram:
        layer_hash_index = 1

        def __call__(self, *given: Any) -> torch.Tensor:
            seen.append(given)
            return given[0] + 1

    return decoder_layer(14, engram=Engram(), mhc_post=post), seen


def test_an_engram_layer_hands_on_a_settled_residual() -> None:
    setting, (vllm, seen), given = Setting(), engram_layer(), activations()
    setting.step(vllm)
    hashes, mask = torch.arange(ROWS * 3).view(ROWS, 3), torch.ones(ROWS, dtype=torch.bool)
    assert setting.layer()(vllm, **given, engram_hashes=hashes, engram_mask=mask)
    post, engram = seen
    assert [
        a is given[n] for a, n in zip(post, ("x", "residual", "post_mix", "res_mix"), strict=True)
    ] == [True] * 4
    assert torch.equal(engram[1], hashes[:, 1])
    assert engram[2] is mask
    call = setting.made[0].calls[0]
    assert torch.equal(call.residual, torch.full((ROWS, HC, HIDDEN), 3.0))
    assert call.fold is False
    assert call.mixes[2] is given["pre_mix"]


def test_an_engram_layer_without_hashes_is_an_ordinary_one() -> None:
    setting, (vllm, seen) = Setting(), engram_layer()
    setting.step(vllm)
    assert setting.layer()(vllm, **activations())
    assert seen == []
    assert setting.made[0].calls[0].fold is True


def test_an_engram_layer_without_hashes_is_the_engines_where_no_launch_folds() -> None:
    setting, (vllm, seen) = Setting(), engram_layer()
    setting.step(vllm)
    layer = setting.layer(limits=replace(LIMITS, served=frozenset()), unfolded=LIMITS)
    assert layer(vllm, **activations()) is None
    assert seen == setting.made == []
    hashes = torch.zeros(ROWS, 2, dtype=torch.int64)
    assert layer(vllm, **activations(), engram_hashes=hashes)


class Recorder:
    """Compressor and indexer that note each call, in order, and answer by name."""

    def __init__(self, scale: Any = None) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.scale = scale

    def compressor(self) -> Any:
        return Compressor(self)

    def indexer(self) -> Any:
        indexer = Mxfp4Indexer()
        for name, answer in {
            "_produce_k": None,
            "weights_proj": ("heads", None),
            "forward_q": ("query", self.scale, "scaled heads"),
            "indexer_op": None,
        }.items():
            setattr(indexer, name, self.noting(name, answer))
        return indexer

    def noting(self, name: str, answer: Any) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            self.calls.append((name, *given))
            return answer

        return call


class Compressor:
    def __init__(self, recorder: Recorder) -> None:
        self.fused_wkv_wgate = Object(weight=torch.randn(8, HIDDEN).bfloat16())
        self.insert_cache = recorder.noting("insert_cache", None)
        self._call = recorder.noting("compressor", "latent")

    def __call__(self, *given: Any) -> Any:
        return self._call(*given)


@pytest.mark.parametrize(("scale", "query"), [(None, "query"), ("scale", ("query", "scale"))])
def test_an_index_source_selects_between_the_launches(scale: Any, query: Any) -> None:
    recorder = Recorder(scale)
    compressor, given = recorder.compressor(), activations()
    vllm = compressed_layer(attn__indexer=recorder.indexer(), attn__compressor=compressor)
    setting = Setting()
    setting.step(vllm, far=compressed())
    setting.layer(limits=replace(LIMITS, ratio=2))(vllm, **given)
    assert recorder.calls == []
    normed, qr = torch.randn(ROWS, HIDDEN).bfloat16(), torch.randn(ROWS, 4).bfloat16()
    setting.made[0].calls[0].select(normed, qr)
    (_, scores, _), *rest = recorder.calls
    expected = normed.double() @ compressor.fused_wkv_wgate.weight.double().T
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores.double(), expected, atol=1e-5, rtol=1e-6)
    attn, positions = vllm.attn, given["positions"]
    assert rest == [
        ("insert_cache", "latent", positions, attn.rotary_emb),
        ("_produce_k", "latent", positions, attn.indexer_rotary_emb),
        ("weights_proj", normed),
        ("forward_q", qr, None, "heads", positions, attn.indexer_rotary_emb),
        ("indexer_op", normed, query, None, "scaled heads"),
    ]


def test_an_index_source_without_a_compressor_selects_among_its_sources_keys() -> None:
    recorder = Recorder()
    vllm = compressed_layer(attn__indexer=recorder.indexer())
    setting = Setting()
    setting.step(vllm, far=compressed())
    setting.layer(limits=replace(LIMITS, ratio=2))(vllm, **activations())
    setting.made[0].calls[0].select(torch.zeros(ROWS, HIDDEN), torch.zeros(ROWS, 4))
    assert [c[0] for c in recorder.calls] == ["weights_proj", "forward_q", "indexer_op"]


def ffn_inputs() -> list[torch.Tensor]:
    given = activations()
    return [given[n] for n in ("x", "residual", "post_mix", "res_mix", "pre_mix")]


def test_an_ffn_layer_leaves_its_attention_to_the_engine() -> None:
    setting, vllm, given = Setting(), decoder_layer(), ffn_inputs()
    layer = setting.layer(FFN, replace(LIMITS, swa_width=None))
    assert layer.ffn_only
    setting.step(vllm)
    assert layer(vllm, **activations()) is None
    assert layer.ffn(vllm, *given) == "outputs of call 1"
    call = setting.made[0].calls[0]
    assert [t is g for t, g in zip(call.tensors, given, strict=True)] == [True] * 5
    assert call.topk == 6


def test_a_drafts_ffn_runs_on_the_models_runner_with_its_own_picks() -> None:
    setting, vllm = Setting("gfx942"), decoder_layer(40)
    decision = LayerDecision(Path.FFN, ("a draft layer",), experts=128, topk=3)
    layer = setting.layer(decision, replace(LIMITS, swa_width=None))
    setting.step(vllm)
    layer.ffn(vllm, *ffn_inputs())
    assert setting.made[0].kind == Kind(384, 6, 2, 128)
    assert setting.made[0].calls[0].topk == 3


def test_an_ffn_step_that_is_not_taken_leaves_the_reduction_to_the_engine() -> None:
    setting, vllm = Setting(), decoder_layer()
    layer = setting.layer(FFN, replace(LIMITS, swa_width=None))
    setting.step(vllm, window(ROWS, num_prefills=1))
    assert layer.ffn(vllm, *ffn_inputs()) is None
    setting.step(vllm)
    part, *others = ffn_inputs()
    assert layer.ffn(vllm, part.T.contiguous().T, *others) is None
    assert setting.made == []


@pytest.mark.parametrize(
    ("arch", "decision", "unfolded"),
    [("gfx950", WHOLE, False), ("gfx942", WHOLE, True), ("gfx942", FFN, False)],
)
def test_the_engines_own_entry_is_unfolded_on_gfx942(
    arch: str, decision: LayerDecision, unfolded: bool
) -> None:
    assert Setting(arch).layer(decision).unfolded_entry is unfolded


@pytest.mark.parametrize("name", ["x", "residual", "post_mix", "res_mix", "pre_mix"])
def test_a_step_with_a_tensor_that_is_not_contiguous_is_the_engines(name: str) -> None:
    setting, vllm, given = Setting(), decoder_layer(), activations()
    setting.step(vllm)
    given[name] = torch.stack([given[name]] * 2, dim=-1)[..., 0]
    assert not given[name].is_contiguous()
    assert setting.layer()(vllm, **given) is None


def test_a_step_inside_a_capture_that_first_needs_a_runner_is_an_error() -> None:
    setting, vllm = Setting(), decoder_layer()
    setting.step(vllm)
    setting.engine.values["capturing"] = True
    with pytest.raises(CaptureActive, match="first decode step"):
        setting.layer()(vllm, **activations())
    with pytest.raises(CaptureActive):
        setting.layer(FFN, replace(LIMITS, swa_width=None)).ffn(vllm, *ffn_inputs())
    assert setting.made == []
    # Once it is there, captures and their replays are what it is for.
    setting.engine.values["capturing"] = False
    setting.layer()(vllm, **activations())
    setting.engine.values["capturing"] = True
    assert setting.layer()(vllm, **activations()) == "outputs of call 2"


def test_weights_are_taken_anew_after_a_reload_and_the_old_ones_let_go() -> None:
    setting, vllm = Setting(), decoder_layer()
    layer = setting.layer()
    setting.step(vllm)
    layer(vllm, **activations())
    setting.loading.loads = 2
    layer(vllm, **activations())
    layer(vllm, **activations())
    (runner,) = setting.made
    assert [c.weights for c in runner.calls] == ["weights 1", "weights 2", "weights 2"]
    assert runner.forgotten == ["weights 1"]


def test_a_reload_that_fails_leaves_nothing_half_taken() -> None:
    setting, vllm = Setting(), decoder_layer()

    def take(layer: Any, layout: Any) -> Any:
        if setting.loading.loads == 2:
            raise ValueError("the new weights do not fit")
        return f"weights of load {setting.loading.loads}"

    weights = CurrentWeights(setting.loading, take)  # type: ignore[arg-type]
    runner: Any = FakeRunner(Kind())
    assert weights.of(vllm, runner) == "weights of load 1"
    setting.loading.loads = 2
    for _ in range(2):
        with pytest.raises(ValueError, match="do not fit"):
            weights.of(vllm, runner)
    assert runner.forgotten == []
    setting.loading.loads = 3
    assert weights.of(vllm, runner) == "weights of load 3"


def test_a_reason_is_logged_once_and_each_step_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "mono_runtime")
    setting, vllm = Setting(), decoder_layer()
    layers = [setting.layer(), setting.layer()]
    setting.step(vllm, cudagraph_runtime_mode=Mode.PIECEWISE)
    for layer in layers * 2:
        assert layer(vllm, **activations()) is None
    setting.engine.current = None
    layers[0](vllm, **activations())
    piecewise = "a PIECEWISE graph, which is replayed for mixed batches too"
    assert setting.declined() == {piecewise: 4, "no forward context": 1}
    assert [r.getMessage().count(piecewise) for r in caplog.records] == [1, 0]
    assert len(caplog.records) == 2
    assert setting.lacking == []


def test_a_width_that_the_store_lacks_is_told_to_whoever_prepared_the_launches() -> None:
    setting, vllm = Setting(), decoder_layer()
    setting.step(vllm, window(7, num_decode_tokens=7))
    assert setting.layer()(vllm, **activations(7)) is None
    fact = "the store has no launches for a step of 7 rows"
    assert setting.lacking == [fact]
    assert setting.declined() == {fact: 1}


def test_runners_are_released_together() -> None:
    setting, vllm = Setting(), decoder_layer()
    setting.step(vllm)
    setting.layer()(vllm, **activations())
    setting.rank.runners.close()
    assert [r.closed for r in setting.made] == [True]
    setting.rank.runners.close()
