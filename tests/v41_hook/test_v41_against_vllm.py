"""Our decisions beside those of vLLM's own hook: its file from the wheel, over the same objects."""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
from pathlib import Path
from types import ModuleType
from types import SimpleNamespace as Object
from typing import Any

import pytest
import torch
from v41_objects import (
    HC,
    HIDDEN,
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

from mono_build.sources import resolve_kernels
from mono_runtime.counters import Counters
from mono_runtime.hooks.deepseek_v41.eligibility import (
    LayerDecision,
    decide_layer,
    deployment_refusals,
)
from mono_runtime.hooks.deepseek_v41.eligibility import Path as Served
from mono_runtime.hooks.deepseek_v41.facts import StepLimits
from mono_runtime.hooks.deepseek_v41.layer import CurrentWeights, MonoLayer, Rank, Runners
from mono_runtime.hooks.deepseek_v41.reading import read_deployment, read_layer
from mono_runtime.hooks.deepseek_v41.report import StepReport

pytestmark = pytest.mark.network

MODELS = "vllm.models.deepseek_v41"
CDNA = {"gfx90a": 2, "gfx942": 3, "gfx950": 4, "gfx1250": 5}


@pytest.fixture(scope="module")
def root() -> Path:
    """vLLM's files."""
    return resolve_kernels(os.environ.get("MONO_TEST_KERNELS", "vllm==0.33.0"), os.environ).root


class Vllm:
    """vLLM's hook with everything that it imports standing in; both sides are told what ``engine`` says."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine = FakeEngine()
        monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 3)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        monkeypatch.setattr(
            torch.cuda, "get_device_properties", lambda _: Object(gcnArchName=self._ask("arch"))
        )
        for name, values in self._modules().items():
            module = ModuleType(name)
            vars(module).update(values)
            monkeypatch.setitem(sys.modules, name, module)
        path = root / (MODELS.replace(".", "/") + "/amd/mono_decode.py")
        spec = importlib.util.spec_from_file_location("vllm_mono_decode_under_test", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.layer_class = module.MonoDecodeLayer
        self.runner = Noting()
        monkeypatch.setattr(module, "_mono_runner", lambda *_: self.runner)
        monkeypatch.setattr(module, "_max_rows", module._max_rows.__wrapped__)
        monkeypatch.setattr(self.layer_class, "weights", lambda *_: "weights")

    def create(self, layer: Any, config: Any) -> Any:
        """What vLLM makes of a layer; the error's text where it refuses the deployment."""
        try:
            return self.layer_class._create(layer, config)
        except ValueError as error:
            return str(error)

    def _ask(self, name: str) -> Any:
        return getattr(self.engine, name)()

    def _modules(self) -> dict[str, dict[str, Any]]:
        silent = Object(info_once=lambda *_: None, debug_once=lambda *_: None)
        # A module's own __getattr__ answers for what it does not have (PEP 562).
        envs = ModuleType("vllm.envs")
        vars(envs)["__getattr__"] = lambda name: self._ask("a4w4")
        return {
            "vllm": {"envs": envs},
            "vllm.envs": vars(envs),
            "vllm.config": {"CUDAGraphMode": Mode},
            "vllm.distributed": {
                "get_tensor_model_parallel_rank": lambda: 0,
                "get_tensor_model_parallel_world_size": lambda: self._ask("tp"),
                "get_tp_group": lambda: None,
            },
            "vllm.forward_context": {
                "is_forward_context_available": lambda: self.engine.current is not None,
                "get_forward_context": lambda: self.engine.current,
            },
            "vllm.logger": {"init_logger": lambda _: silent},
            "vllm.platforms": {
                "current_platform": Object(num_compute_units=lambda _: self._ask("compute_units"))
            },
            "vllm.platforms.rocm": {"get_cdna_version": lambda: CDNA[self._ask("arch")]},
            "vllm.model_executor.layers.fused_moe.oracle.mxfp4": {"Mxfp4MoeBackend": Backend},
            f"{MODELS}.amd.mono.runner": {"BLOCKS": 256},
            f"{MODELS}.amd.mono.common.arch": {"target_arch": lambda: self._ask("arch")},
            f"{MODELS}.amd.ops": {"topk": Object(build=lambda: True)},
            f"{MODELS}.amd.rocm": {"DeepseekV41RocmMxfp4Indexer": Mxfp4Indexer},
            f"{MODELS}.attention": {"DeepseekV4Indexer": Fp8Indexer},
            "vllm.v1.attention.backends.mla.compressor_utils": {
                "get_dspark_swa_index_width": lambda *of: self.engine.draft_width(*of)
            },
        }


@pytest.fixture
def vllm(root: Path, monkeypatch: pytest.MonkeyPatch) -> Vllm:
    return Vllm(root, monkeypatch)


def grid(*deviations: tuple[str, Any]) -> list[dict[str, Any]]:
    """Nothing amiss, each deviation alone, and every two of them that do not exclude each other."""
    one = [{name: value} for name, value in deviations]
    two = [{a: x, b: y} for (a, x), (b, y) in itertools.combinations(deviations, 2) if a != b]
    return [{}, *one, *two]


DEPLOYMENTS = grid(
    ("arch", "gfx942"),
    ("arch", "gfx90a"),
    ("arch", "gfx1250"),
    ("tp", 2),
    ("tp", 1),
    ("tp", 8),
    ("compute_units", 304),
    ("compute_units", 255),
    ("a4w4", True),
    ("parallel_config__enable_expert_parallel", True),
    ("parallel_config__enable_eplb", True),
    ("parallel_config__data_parallel_size", 2),
    ("ffn__experts__routed_experts__quant_method__mxfp4_backend", Backend.TRITON),
    ("ffn__experts__routed_experts", None),
)


def test_deployments_are_refused_where_vllm_refuses_them(vllm: Vllm) -> None:
    refused, stricter = 0, []
    for changed in DEPLOYMENTS:
        of = {part: {} for part in ("engine", "config", "layer")}  # type: dict[str, dict[str, Any]]
        for name, value in changed.items():
            part = "config" if "config__" in name else "layer" if "__" in name else "engine"
            of[part][name] = value
        vllm.engine = FakeEngine(**{"arch": "gfx950", **of["engine"]})
        config, layer = vllm_config(**of["config"]), decoder_layer(**of["layer"])
        ours = deployment_refusals(read_deployment(layer, config, vllm.engine))
        theirs = vllm.create(layer, config)
        if bool(ours) != isinstance(theirs, str):
            stricter.append((changed, ours, theirs))
        refused += isinstance(theirs, str)
    assert refused > 50
    # The one difference, on purpose: an explicit switch with which vLLM would run no layer at all.
    assert {(c.get("arch"), c.get("tp")) for c, _, _ in stricter} == {("gfx942", 2)}
    assert [theirs for _, _, theirs in stricter] == [None] * len(stricter)
    assert all(len(ours) == 1 and "has to be 4" in ours[0] for _, ours, _ in stricter)


LAYERS = grid(
    ("use_sequence_parallel", True),
    ("fuse_seam_norm", False),
    ("ffn__shared_experts", None),
    ("ffn__gate__tid2eid", "a table"),
    ("ffn__n_routed_experts", 256),
    ("ffn__n_activated_experts", 8),
    ("ffn__routed_scaling_factor", 2.5),
    ("ffn__swiglu_limit", None),
    ("ffn__scoring_func", "softmax"),
    ("ffn__renormalize", False),
    ("attn__compressor", "a compressor"),
    ("attn__indexer", OtherIndexer()),
    ("attn__indexer", Mxfp4Indexer()),
    ("attn__indexer", Fp8Indexer()),
    ("attn__compress_ratio", 1),
    ("attn__compress_ratio", 2),
    ("attn__compress_ratio", 4),
    ("attn__kv_mxfp8", True),
    ("attn__kv_cache_dtype", "bfloat16"),
    ("attn__kv_cache_dtype", "nvfp4_ds_mla"),
)


@pytest.mark.parametrize("arch", ["gfx950", "gfx942"])
@pytest.mark.parametrize("number", [0, 5, 40, 41])
@pytest.mark.parametrize("draft", ["its own routing", "the backbone's"])
def test_layers_run_as_they_do_in_vllm(vllm: Vllm, arch: str, number: int, draft: str) -> None:
    vllm.engine = FakeEngine(arch)
    config = vllm_config(speculative_config__num_speculative_tokens=7)
    if draft == "the backbone's":
        del config.model_config.hf_config.dspark_n_routed_experts
        config.model_config.hf_config.dspark_num_experts_per_tok = 0
    kinds = set()
    for changed in LAYERS:
        layer = decoder_layer(number, **changed)
        decision = decide_layer(read_layer(layer, config, arch, vllm.engine), arch)
        assert told(decision) == made(vllm.create(layer, config)), changed
        kinds.add(decision.path)
    assert Served.OFF in kinds
    drafted = number >= 40
    if not (drafted and draft == "the backbone's"):
        assert (Served.FFN in kinds) == (not drafted or arch == "gfx942")
        assert (Served.WHOLE in kinds) == (not drafted or arch == "gfx950")


def told(decision: LayerDecision) -> tuple[Any, ...] | None:
    d = decision
    if d.path is Served.OFF:
        return None
    return d.path is Served.FFN, d.draft, d.experts, d.topk, d.swa_width


def made(theirs: Any) -> tuple[Any, ...] | None:
    t = theirs
    return None if t is None else (t.ffn_only, t.draft, t.experts, t.topk, t.swa_width)


STEPS = grid(
    ("rows", 0),
    ("rows", 1),
    ("rows", 42),
    ("rows", 43),
    ("rows", 48),
    ("rows", 49),
    ("context", None),
    ("cudagraph_runtime_mode", Mode.NONE),
    ("cudagraph_runtime_mode", Mode.PIECEWISE),
    ("attn_metadata", None),
    ("attn_metadata", [{}, {}]),
    ("attn_metadata", {}),
    ("far", None),
    ("num_prefills", 1),
    ("num_decodes", 0),
    ("num_decode_tokens", 13),
    ("num_decode_tokens", 7),
    ("decode_swa_width", 192),
    ("decode_swa_width", 256),
    ("decode_swa_indices", None),
    ("decode_swa_lens", None),
    ("token_to_req_indices", None),
    ("strided", "x"),
    ("strided", "residual"),
    ("strided", "pre_mix"),
    ("first", True),
    ("hashes", True),
)


def stepped(engine: FakeEngine, layer: Any, changed: dict[str, Any]) -> dict[str, Any]:
    """Make ``engine`` have a step, and give the layer's arguments."""
    rest = dict(changed)
    rows, first = rest.pop("rows", 12), rest.pop("first", False)
    strided, hashes = rest.pop("strided", None), rest.pop("hashes", False)
    far, there = rest.pop("far", compressed()), rest.pop("context", True)
    step = {n: rest.pop(n) for n in ("cudagraph_runtime_mode", "attn_metadata") if n in rest}
    swa = window(max(rows, 12), **{"num_decode_tokens": min(rows, 12), **rest})
    engine.current = context(layer, swa, far, **step) if there else None
    given: dict[str, Any] = {
        "x": torch.randn(rows, HIDDEN),
        "positions": torch.arange(rows),
        "residual": torch.randn(rows, HC, HIDDEN),
        "post_mix": torch.randn(rows, HC, 1),
        "res_mix": torch.randn(rows, HC, HC),
        "pre_mix": torch.randn(rows, HC),
    }
    if first:
        given |= dict.fromkeys(("residual", "post_mix", "res_mix", "pre_mix"))
    if strided and given[strided] is not None:
        given[strided] = torch.stack([given[strided]] * 2, dim=-1)[..., 0]
    if hashes:
        given["engram_hashes"] = torch.arange(rows * 2).view(rows, 2)
    return given


class Engram:
    layer_hash_index = 1

    def __call__(self, residual: Any, hashes: Any, mask: Any) -> Any:
        return residual + hashes.view(-1, 1, 1)


STEPPED_LAYERS = {
    "plain": lambda: decoder_layer(5),
    "compressed": lambda: compressed_layer(5),
    "index source": lambda: compressed_layer(8, 1, attn__indexer=Mxfp4Indexer()),
    "engram": lambda: decoder_layer(
        1, engram=Engram(), mhc_post=lambda x, residual, *_: residual + x.unsqueeze(1)
    ),
    "draft": lambda: decoder_layer(40),
}


class Noting:
    """A runner of either side: notes what it is given."""

    def __init__(self) -> None:
        self.last: tuple[tuple[Any, ...], dict[str, Any]] | None = None

    def first_pre_mix(self, rows: int) -> torch.Tensor:
        return torch.eye(HC)[:1].repeat(rows, 1)

    def forward(self, *given: Any, **named: Any) -> str:
        self.last = (given, named)
        return "outputs"

    ffn = forward

    def forget(self, weights: Any) -> None:
        """Nothing was kept."""


def ours(
    engine: FakeEngine, runner: Any, decision: LayerDecision, ratio: int, limit: int
) -> MonoLayer:
    """Our layer, with launches of every width."""
    width = None if decision.path is Served.FFN else decision.swa_width
    limits = StepLimits(limit, frozenset(range(1, 49)), ratio, width)
    weights = CurrentWeights(Object(loads=1, layout=None), lambda *_: "weights")  # type: ignore[arg-type, return-value]
    rank = Rank(
        engine, Runners(lambda kind: runner, engine), StepReport(lambda _: None, Counters())
    )
    return MonoLayer(rank, decision, engine.values["arch"], {True: limits, False: limits}, weights)


@pytest.mark.parametrize("kind", STEPPED_LAYERS)
@pytest.mark.parametrize(("arch", "limit"), [("gfx950", 48), ("gfx942", 42)])
def test_whole_layers_take_the_steps_that_they_take_in_vllm(
    vllm: Vllm, kind: str, arch: str, limit: int
) -> None:
    vllm.engine = FakeEngine(arch)
    layer = STEPPED_LAYERS[kind]()
    decision = LayerDecision(Served.WHOLE)
    theirs = vllm.layer_class()
    if kind == "draft":
        decision = LayerDecision(Served.WHOLE, (), True, 128, 3, 192)
        theirs = vllm.layer_class(draft=True, experts=128, topk=3, swa_width=192)
    runner = Noting()
    mine = ours(vllm.engine, runner, decision, layer.attn.compress_ratio, limit)
    taken = set()
    for changed in STEPS:
        if kind == "draft":
            changed = {"decode_swa_width": 192, **changed}
        given = stepped(vllm.engine, layer, changed)
        if kind == "draft" and given["residual"] is None:
            streams = given["x"].unsqueeze(1).repeat(1, HC, 1)
            given["x"] = streams if "strided" not in changed else streams.transpose(0, 1)
        runner.last = vllm.runner.last = None
        got, want = mine(layer, **given), theirs(layer, **given)
        assert (got is None) == (want is None), changed
        if got is not None:
            assert runner.last is not None
            assert vllm.runner.last is not None
            same_call(runner.last, vllm.runner.last)
            taken.add(tuple(sorted(changed)))
    assert len(taken) > 8


NAMES = ("w", "x", "residual", "post_mix", "res_mix", "pre_mix", "positions", "slot_mapping")
NAMES += ("swa_cache", "swa_indices", "swa_lens", "token_to_req")
COMPRESSED = ("topk_indices", "comp_cache", "comp_block_table")


def same_call(ours: Any, theirs: Any) -> None:
    """Our runner got what vLLM's got: the same values, and caches as the same memory."""
    (weights, step, *activations), named = ours
    mine = dict(zip(NAMES, (weights, *activations, *step[:6]), strict=True))
    mine |= {n: t for n, t in zip(COMPRESSED, step[6:], strict=True) if t is not None}
    mine |= {n: v for n, v in named.items() if v is not None}
    vllms = {**dict(zip(NAMES, theirs[0], strict=True)), **theirs[1]}
    assert set(mine) == set(vllms)
    for name, value in vllms.items():
        if not isinstance(value, torch.Tensor):
            assert name == "select" or mine[name] == value
            continue
        assert torch.equal(mine[name], value), name
        assert mine[name].stride() == value.stride(), name
        if name not in ("x", "residual", "post_mix", "res_mix", "pre_mix"):
            assert mine[name].data_ptr() == value.data_ptr(), name


@pytest.mark.parametrize(("arch", "limit"), [("gfx950", 48), ("gfx942", 42)])
def test_ffn_layers_take_the_steps_that_they_take_in_vllm(
    vllm: Vllm, arch: str, limit: int
) -> None:
    vllm.engine = FakeEngine(arch)
    layer = compressed_layer(5)
    decision = LayerDecision(Served.FFN, ("a draft layer",), experts=128, topk=3)
    theirs = vllm.layer_class(ffn_only=True, experts=128, topk=3)
    runner = Noting()
    mine = ours(vllm.engine, runner, decision, 0, limit)
    taken = 0
    for changed in STEPS:
        if {"first", "hashes"} & set(changed):
            continue
        given = stepped(vllm.engine, layer, changed)
        inputs = [given[n] for n in ("x", "residual", "post_mix", "res_mix", "pre_mix")]
        assert mine(layer, **given) is theirs(layer, **given) is None
        got, want = mine.ffn(layer, *inputs), theirs.ffn(layer, *inputs)
        assert (got is None) == (want is None), changed
        if got is not None:
            assert runner.last == vllm.runner.last == (("weights", *inputs), {"topk": 3})
            taken += 1
    assert taken > 20


@pytest.mark.parametrize("scale", [None, "scale"])
@pytest.mark.parametrize("compressor", [True, False])
def test_an_index_source_asks_its_compressor_and_indexer_as_vllm_does(
    vllm: Vllm, monkeypatch: pytest.MonkeyPatch, scale: Any, compressor: bool
) -> None:
    # torch multiplies into another type on GPUs only.
    monkeypatch.setattr(torch, "mm", lambda a, b, out_dtype: a.to(out_dtype) @ b.to(out_dtype))
    calls: list[tuple[Any, ...]] = []

    def noting(name: str, answer: Any) -> Any:
        return lambda *given: calls.append((name, *given)) or answer

    indexer = Mxfp4Indexer()
    for name, answer in {
        "_produce_k": None,
        "weights_proj": ("heads", None),
        "forward_q": ("query", scale, "scaled heads"),
        "indexer_op": None,
    }.items():
        setattr(indexer, name, noting(name, answer))
    compress = noting("compress", "latent")

    class Compressor:
        fused_wkv_wgate = Object(weight=torch.randn(8, HIDDEN).bfloat16())
        insert_cache = staticmethod(noting("insert_cache", None))

        def __call__(self, *given: Any) -> Any:
            return compress(*given)

    layer = compressed_layer(
        8, attn__indexer=indexer, attn__compressor=Compressor() if compressor else None
    )
    selections = []
    runner = Noting()
    mine = ours(vllm.engine, runner, LayerDecision(Served.WHOLE), 2, 48)
    for mono, noted in ((mine, runner), (vllm.layer_class(), vllm.runner)):
        given = stepped(vllm.engine, layer, {})
        assert mono(layer, **given)
        assert noted.last is not None
        selections.append(noted.last[1]["select"])
    normed, qr = torch.randn(12, HIDDEN).bfloat16(), torch.randn(12, 4).bfloat16()
    both = []
    for select in selections:
        calls.clear()
        select(normed, qr)
        both.append([*calls])
    assert len(both[0]) == (6 if compressor else 3)
    for got, want in zip(*both, strict=True):
        for a, b in zip(got, want, strict=True):
            assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
