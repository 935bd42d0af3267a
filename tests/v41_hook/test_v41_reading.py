"""The facts of vLLM's objects: each is read from its own attribute."""

from __future__ import annotations

import sys
from types import ModuleType
from types import SimpleNamespace as Object
from typing import Any

import pytest
import torch
from v41_objects import (
    Backend,
    FakeEngine,
    Fp8Indexer,
    Mode,
    Mxfp4Indexer,
    OtherIndexer,
    compressed,
    compressed_layer,
    context,
    decoder_layer,
    vllm_config,
    window,
)

from mono_runtime.errors import ArgumentMismatch
from mono_runtime.hooks.deepseek_v41.engine import VllmEngine
from mono_runtime.hooks.deepseek_v41.facts import (
    AttentionFacts,
    DeploymentFacts,
    LayerFacts,
    Routing,
    StepFacts,
    WindowFacts,
)
from mono_runtime.hooks.deepseek_v41.reading import (
    read_deployment,
    read_layer,
    read_step,
    record_view,
)


@pytest.mark.parametrize(
    ("config", "layer", "engine", "facts"),
    [
        ({}, {}, {}, DeploymentFacts("gfx950", 256, 4, moe_backend="AITER_MXFP4_BF16")),
        (
            {
                "parallel_config__enable_expert_parallel": True,
                "parallel_config__enable_eplb": True,
                "parallel_config__data_parallel_size": 8,
            },
            {"ffn__experts__routed_experts__quant_method__mxfp4_backend": Backend.TRITON},
            {"arch": "gfx90a", "compute_units": 104, "tp": 2, "a4w4": True},
            DeploymentFacts("gfx90a", 104, 2, True, True, 8, True, "TRITON"),
        ),
        # The layer's own rules decline what is no routed MoE.
        ({}, {"ffn__experts": None}, {}, DeploymentFacts("gfx950", 256, 4, moe_backend=None)),
        (
            {},
            {"ffn__experts__routed_experts__quant_method": Object()},
            {},
            DeploymentFacts("gfx950", 256, 4, moe_backend="None"),
        ),
    ],
)
def test_a_deployment(
    config: dict[str, Any], layer: dict[str, Any], engine: dict[str, Any], facts: DeploymentFacts
) -> None:
    found = read_deployment(
        decoder_layer(**layer), vllm_config(**config), FakeEngine(**{"arch": "gfx950", **engine})
    )
    assert found == facts


TARGET = Routing(384, 6)


@pytest.mark.parametrize(
    ("number", "changed", "facts"),
    [
        (5, {}, LayerFacts(False, TARGET, AttentionFacts())),
        (0, {}, LayerFacts(False, TARGET, AttentionFacts(), first=True)),
        (5, {"engram": Object()}, LayerFacts(False, TARGET, AttentionFacts(), engram=True)),
        (
            5,
            {"use_sequence_parallel": True, "fuse_seam_norm": False},
            LayerFacts(False, TARGET, AttentionFacts(), True, False),
        ),
        (
            5,
            {
                "ffn__shared_experts": None,
                "ffn__gate__tid2eid": Object(),
                "ffn__n_routed_experts": 256,
                "ffn__n_activated_experts": 8,
                "ffn__routed_scaling_factor": 2.5,
                "ffn__swiglu_limit": None,
                "ffn__scoring_func": "sigmoid",
                "ffn__renormalize": False,
            },
            LayerFacts(
                False, Routing(256, 8, 2.5, None, "sigmoid", False, True, False), AttentionFacts()
            ),
        ),
        (
            5,
            {
                "attn__compress_ratio": 2,
                "attn__kv_cache_dtype": "bfloat16",
                "attn__kv_mxfp8": True,
                "attn__compressor": Object(),
                "attn__indexer": OtherIndexer(),
            },
            LayerFacts(
                False, TARGET, AttentionFacts(2, "bfloat16", True, True, "OtherIndexer", False)
            ),
        ),
        (
            40,
            {},
            LayerFacts(
                True,
                Routing(128, 3),
                AttentionFacts(),
                trained_routing=(128, 3),
                swa_width=192,
                first=True,
            ),
        ),
        (
            41,
            {},
            LayerFacts(
                True, Routing(128, 3), AttentionFacts(), trained_routing=(128, 3), swa_width=192
            ),
        ),
    ],
)
def test_a_layer(number: int, changed: dict[str, Any], facts: LayerFacts) -> None:
    layer = decoder_layer(number, **changed)
    assert read_layer(layer, vllm_config(), "gfx950", FakeEngine()) == facts


def test_a_draft_without_routing_of_its_own_has_the_backbones() -> None:
    config = vllm_config()
    del config.model_config.hf_config.dspark_n_routed_experts
    config.model_config.hf_config.dspark_num_experts_per_tok = None
    facts = read_layer(decoder_layer(40), config, "gfx950", FakeEngine())
    assert facts.trained_routing == (384, 6)


@pytest.mark.parametrize(
    ("arch", "indexer", "fits"),
    [
        ("gfx950", Mxfp4Indexer, True),
        ("gfx950", Fp8Indexer, False),
        ("gfx942", Fp8Indexer, True),
        # vLLM subclasses its FP8 indexer for gfx942's top-k.
        ("gfx942", type("DeepseekV41Gfx942Indexer", (Fp8Indexer,), {}), True),
        ("gfx942", OtherIndexer, False),
    ],
)
def test_the_indexer_has_to_be_the_architectures(arch: str, indexer: type, fits: bool) -> None:
    layer = decoder_layer(attn__indexer=indexer())
    facts = read_layer(layer, vllm_config(), arch, FakeEngine(arch)).attention
    assert (facts.indexer, facts.indexer_fits) == (indexer.__name__, fits)


ROWS = torch.zeros(12, 16)
WINDOW = WindowFacts(0, 2, 12, 128, True)


def read(layer: Any, current: Any, *tensors: Any) -> StepFacts:
    engine = FakeEngine()
    engine.current = current
    return read_step(layer.attn, 12, tensors or (ROWS,), engine).facts


@pytest.mark.parametrize(
    ("changed", "facts"),
    [
        ({}, StepFacts(12, "FULL", True, WINDOW)),
        ({"cudagraph_runtime_mode": Mode.NONE}, StepFacts(12, "NONE", True, WINDOW)),
        ({"cudagraph_runtime_mode": Mode.PIECEWISE}, StepFacts(12, "PIECEWISE", True, WINDOW)),
        ({"attn_metadata": None}, StepFacts(12, "FULL", False)),
        ({"attn_metadata": [{}, {}]}, StepFacts(12, "FULL", False)),
        ({"attn_metadata": {}}, StepFacts(12, "FULL", True)),
    ],
)
def test_a_step(changed: dict[str, Any], facts: StepFacts) -> None:
    layer = decoder_layer()
    assert read(layer, context(layer, window(), **changed)) == facts


@pytest.mark.parametrize(
    ("changed", "facts"),
    [
        ({"num_prefills": 1}, WindowFacts(1, 2, 12, 128, True)),
        ({"num_decodes": 0}, WindowFacts(0, 0, 12, 128, True)),
        ({"num_decode_tokens": 7}, WindowFacts(0, 2, 7, 128, True)),
        ({"decode_swa_width": 192}, WindowFacts(0, 2, 12, 192, True)),
        ({"decode_swa_indices": None}, WindowFacts(0, 2, 12, 128, False)),
        ({"decode_swa_lens": None}, WindowFacts(0, 2, 12, 128, False)),
        ({"token_to_req_indices": None}, WindowFacts(0, 2, 12, 128, False)),
    ],
)
def test_a_steps_window(changed: dict[str, Any], facts: WindowFacts) -> None:
    layer = decoder_layer()
    assert read(layer, context(layer, window(**changed))).window == facts


def test_a_step_outside_of_a_forward_pass() -> None:
    assert read(decoder_layer(), None) == StepFacts(12, None, metadata=False)


def test_a_layer_sees_its_own_metadata_and_its_sources() -> None:
    layer, other = compressed_layer(5), compressed_layer(6)
    engine = FakeEngine()
    mine, far = window(), compressed()
    engine.current = context(layer, mine, far)
    seen = read_step(layer.attn, 12, (ROWS,), engine)
    assert seen.window is mine
    assert seen.compressed is far
    assert seen.facts.compressed
    assert read_step(other.attn, 12, (ROWS,), engine).facts.window is None
    engine.current = context(layer, mine)
    assert not read_step(layer.attn, 12, (ROWS,), engine).facts.compressed


def test_inputs_have_to_be_there_and_contiguous() -> None:
    layer = decoder_layer()
    current = context(layer, window())
    assert read(layer, current, ROWS, ROWS).contiguous
    assert not read(layer, current, ROWS, ROWS.T).contiguous
    assert not read(layer, current, ROWS, None).contiguous


def test_a_cache_is_seen_as_records_of_584_bytes_at_the_blocks_own_stride() -> None:
    storage = torch.arange(3 * 4096, dtype=torch.int64).remainder(251).to(torch.uint8).view(3, 4096)
    cache = torch.as_strided(storage, (3, 5, 584), (4096, 584, 1)).view(torch.float8_e4m3fn)
    view = record_view(cache, 5)
    assert (view.shape, view.dtype) == ((3, 5, 584), torch.uint8)
    assert (view.data_ptr(), view.stride()) == (storage.data_ptr(), (4096, 584, 1))
    assert torch.equal(view[2, 4], storage[2, 4 * 584 : 5 * 584])


def test_a_cache_whose_blocks_are_too_small_is_refused() -> None:
    with pytest.raises(ArgumentMismatch, match="no room for 6 records of 584 bytes"):
        record_view(torch.zeros(2, 5, 584, dtype=torch.uint8), 6)


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """Modules of vLLM that answer with what tells them apart; no other of vLLM's is there."""

    def module(name: str, **values: Any) -> ModuleType:
        made = ModuleType(name)
        vars(made).update(values)
        monkeypatch.setitem(sys.modules, name, made)
        parent, _, last = name.rpartition(".")
        if parent in sys.modules:
            setattr(sys.modules[parent], last, made)
        return made

    told: list[Any] = []
    platform = Object(num_compute_units=lambda index: 300 + index)
    context = Object(value=None)
    found = {
        name: module(f"vllm.{name}" if name else "vllm", **values)
        for name, values in {
            "": {"told": told},
            "envs": {"VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4": None},
            "platforms": {"current_platform": platform},
            "distributed": {
                "get_tensor_model_parallel_world_size": lambda: 4,
                "get_tensor_model_parallel_rank": lambda: 2,
                "get_tp_group": lambda: Object(cpu_group="the ranks"),
            },
            "forward_context": {
                "context": context,
                "is_forward_context_available": lambda: context.value is not None,
                "get_forward_context": lambda: context.value,
            },
            "models": {},
            "models.deepseek_v41": {},
            "models.deepseek_v41.attention": {"DeepseekV4Indexer": Fp8Indexer},
            "models.deepseek_v41.amd": {},
            "models.deepseek_v41.amd.rocm": {"DeepseekV41RocmMxfp4Indexer": Mxfp4Indexer},
            "models.deepseek_v41.amd.ops": {"record_monokernel": told.append},
            "models.deepseek_v41.amd.ops.topk": {"build": lambda: told.append("built")},
            "v1": {},
            "v1.attention": {},
            "v1.attention.backends": {},
            "v1.attention.backends.mla": {},
            "v1.attention.backends.mla.compressor_utils": {
                "get_dspark_swa_index_width": lambda window, drafts: window + drafts
            },
        }.items()
    }
    properties = Object(gcnArchName="GFX942:sramecc+:xnack-")
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 4)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    return found


def test_the_process_is_asked_through_vllms_own_functions(modules: dict[str, ModuleType]) -> None:
    engine = VllmEngine()
    assert engine.arch() == "gfx942"
    assert (engine.device(), engine.compute_units()) == (4, 304)
    assert (engine.tp(), engine.rank(), engine.group()) == (4, 2, "the ranks")
    assert engine.indexer_class("gfx942") is Fp8Indexer
    assert engine.indexer_class("gfx950") is Mxfp4Indexer
    assert engine.draft_width(128, 5) == 133
    assert engine.capturing()
    assert engine.forward_context() is None
    modules["forward_context"].context.value = "a step"
    assert engine.forward_context() == "a step"
    config = vllm_config()
    engine.record_switch(config)
    engine.build_topk()
    assert modules[""].told == [config, "built"]


@pytest.mark.parametrize(("switch", "on"), [(None, False), (False, False), (True, True)])
def test_the_switch_of_fp4_activations(
    modules: dict[str, ModuleType], switch: bool | None, on: bool
) -> None:
    vars(modules["envs"])["VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4"] = switch
    assert VllmEngine().a4w4() is on
