"""What is read of a configuration against vLLM's own classes: names, defaults, graph modes, model configurations."""

from __future__ import annotations

import ast
import enum
import sys
from dataclasses import fields
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from engine_kit import K3_MODEL, M3_MODEL, V41_MODEL
from wheel_code import class_of, taken, tree

from mono_runtime.hooks.deployments import Planned, family_of, plan_deployment
from mono_runtime.hooks.engine_config import EngineConfig, read_engine_config
from mono_runtime.hooks.planning import deepseek_v4, deepseek_v41, kimi_k3, minimax_m3
from mono_runtime.hooks.planning.wanted import graphs_in_use

pytestmark = pytest.mark.network

# Each section of a configuration, and its class.
SECTIONS = {
    "model_config": ("config/model.py", "ModelConfig"),
    "kernel_config": ("config/kernel.py", "KernelConfig"),
    "parallel_config": ("config/parallel.py", "ParallelConfig"),
    "scheduler_config": ("config/scheduler.py", "SchedulerConfig"),
    "speculative_config": ("config/speculative.py", "SpeculativeConfig"),
    "compilation_config": ("config/compilation.py", "CompilationConfig"),
    "cache_config": ("config/cache.py", "CacheConfig"),
    "attention_config": ("config/attention.py", "AttentionConfig"),
    "": ("config/vllm.py", "VllmConfig"),
}
# Facts that are no field of a class: a free dictionary, and the checkpoint's own configuration.
FREE = {"additional_config.decode_backend", "model_config.hf_config.model_type"}
# Ours stands for vLLM's None, which its start-up replaces with this.
REPLACED = {
    "compilation_config.cudagraph_mode": "FULL_AND_PIECEWISE",
    "speculative_config.method": "",
}
PATHS = {f.metadata["path"]: f.metadata["default"] for f in fields(EngineConfig) if f.metadata}


def members(file: str, name: str) -> dict[str, ast.expr | None]:
    """Fields with their defaults, and properties and methods, of a class."""
    found: dict[str, ast.expr | None] = {}
    for node in class_of(file, name).body:
        if isinstance(node, ast.AnnAssign):
            found[ast.unparse(node.target)] = node.value
        elif isinstance(node, ast.FunctionDef):
            found[node.name] = None
    return found


@pytest.mark.parametrize("path", sorted(PATHS.keys() - FREE))
def test_a_fact_lies_where_the_engine_has_it(path: str) -> None:
    section, _, name = path.rpartition(".")
    assert name in members(*SECTIONS[section])


@pytest.mark.parametrize("section", [s for s in SECTIONS if s])
def test_a_section_is_a_field_of_the_configuration(section: str) -> None:
    assert section in members("config/vllm.py", "VllmConfig")


@pytest.mark.parametrize("path", sorted(PATHS.keys() - FREE - REPLACED.keys()))
def test_a_literal_default_is_the_engines(path: str) -> None:
    section, _, name = path.rpartition(".")
    value = members(*SECTIONS[section])[name]
    if isinstance(value, ast.Call):
        value = next((k.value for k in value.keywords if k.arg == "default"), None)
    if value is None:
        return  # computed
    try:
        theirs = ast.literal_eval(value)
    except ValueError:
        return  # a constant of another module
    # What is None here or there is computed when the server starts.
    assert theirs is None or PATHS[path] in (None, theirs)


def test_the_graph_mode_that_ours_stands_for_is_the_default_of_the_optimisation_level() -> None:
    (level,) = (
        n.value
        for n in tree("config/vllm.py").body
        if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "OPTIMIZATION_LEVEL_02"
    )
    mode = REPLACED["compilation_config.cudagraph_mode"]
    assert f"CUDAGraphMode.{mode}" in ast.unparse(level)
    assert PATHS["compilation_config.cudagraph_mode"] == mode


def test_real_graph_modes_are_read() -> None:
    (modes,) = taken("config/compilation.py", {"CUDAGraphMode": ()}, {"enum": enum})
    for mode in modes:
        for spelt in (mode, mode.name, mode.value):
            config = {
                "model_config": {"hf_config": {"model_type": "x"}},
                "compilation_config": {"cudagraph_mode": spelt},
            }
            assert read_engine_config(config).graphs == mode.name


@pytest.mark.parametrize("breakable", [True, False])
@pytest.mark.parametrize("splits", [True, False])
@pytest.mark.parametrize(
    "mode", ["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"]
)
def test_the_graphs_in_use_are_what_the_model_runner_resolves(
    monkeypatch: pytest.MonkeyPatch, mode: str, splits: bool, breakable: bool
) -> None:
    (support,) = taken("v1/attention/backend.py", {"AttentionCGSupport": ()}, {"Enum": enum.Enum})
    for name in ("vllm", "vllm.v1", "vllm.v1.attention", "vllm.v1.attention.backend"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    backend = sys.modules["vllm.v1.attention.backend"]
    monkeypatch.setattr(backend, "AttentionCGSupport", support, raising=False)
    quiet = SimpleNamespace(warning=lambda *_: None, warning_once=lambda *_: None)
    modes, cls = taken(
        "config/compilation.py",
        {"CUDAGraphMode": (), "CompilationConfig": ("resolve_cudagraph_mode_and_sizes",)},
        {"enum": enum, "logger": quiet, "CompilationMode": SimpleNamespace(VLLM_COMPILE=3)},
    )
    config = cls()
    config.cudagraph_mode, config.mode = modes[mode], 0
    config.use_inductor_graph_partition = False
    config.splitting_ops_contain_attention = lambda: splits
    theirs = config.resolve_cudagraph_mode_and_sizes(
        support.UNIFORM_BATCH, "DEEPSEEK_SPARSE_SWA", 6, True, piecewise_capture_available=breakable
    )
    ours = graphs_in_use(
        read_engine_config(
            {
                "model_config": {"hf_config": {"model_type": "x"}},
                "compilation_config": {"cudagraph_mode": mode},
            }
        ),
        breakable=breakable,
    )
    if mode == "FULL" and splits and breakable:
        # Ours is the wider: it has every width of the other.
        assert (ours, theirs.name) == ("FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
    else:
        assert ours == theirs.name


class PreTrainedConfig:
    """The part of transformers' base class that these configurations need."""

    def __init__(self, **kwargs: Any) -> None:
        for name, value in kwargs.items():
            setattr(self, name, value)


def server(model: Any, **sections: Any) -> Any:
    """A server's objects with the engine's own model configuration."""
    text = getattr(model, "text_config", model)
    made = {
        "kernel_config": SimpleNamespace(monokernel=True, moe_backend="aiter"),
        "additional_config": {"decode_backend": "latency_specialized"},
        "cache_config": SimpleNamespace(cache_dtype="fp8", block_size=128),
        "attention_config": SimpleNamespace(indexer_kv_dtype="fp8"),
        "speculative_config": None,
        **sections,
    }
    return SimpleNamespace(
        model_config=SimpleNamespace(hf_config=model, hf_text_config=text), **made
    )


def planned(config: Any) -> Planned:
    found = plan_deployment(read_engine_config(config, {}), "gfx950")
    assert isinstance(found, Planned), found
    return found


def test_v41s_configuration_class_is_read() -> None:
    (cls,) = taken(
        "transformers_utils/configs/deepseek_v41.py",
        {"DeepseekV41Config": ()},
        {"PreTrainedConfig": PreTrainedConfig},
    )
    text = {n: v for n, v in V41_MODEL.items() if n not in ("model_type", "architectures")}
    config = server(
        cls(text_config=text),
        parallel_config=SimpleNamespace(tensor_parallel_size=4),
        attention_config=SimpleNamespace(indexer_kv_dtype="mxfp4"),
    )
    assert len(planned(config).keys) == 108


def test_kimis_configuration_classes_are_read() -> None:
    given = {"PreTrainedConfig": PreTrainedConfig}
    (linear,) = taken("transformers_utils/configs/kimi_linear.py", {"KimiLinearConfig": ()}, given)
    given |= {"KimiLinearConfig": linear, "logger": SimpleNamespace(info=lambda *_: None)}
    cls, _ = taken(
        "transformers_utils/configs/kimi_k3.py",
        {"KimiK3Config": (), "KimiK3VisionConfig": ()},
        given,
    )
    config = server(
        cls(text_config=K3_MODEL["text_config"]),
        parallel_config=SimpleNamespace(tensor_parallel_size=8),
        speculative_config=SimpleNamespace(num_speculative_tokens=7, method="dspark"),
    )
    found = planned(config)
    assert len(found.keys) == 30
    assert {k.values["eps"] for k in found.keys} == {1e-5}


def test_minimaxes_configuration_classes_are_read_with_their_defaults() -> None:
    cls, _ = taken(
        "transformers_utils/configs/minimax_m3.py",
        {"MiniMaxM3Config": (), "MiniMaxM3TextConfig": ()},
        {"PreTrainedConfig": PreTrainedConfig},
    )
    config = server(cls(), parallel_config=SimpleNamespace(tensor_parallel_size=4))
    assert len(planned(config).keys) == 16
    assert cls().text_config.num_hidden_layers == M3_MODEL["text_config"]["num_hidden_layers"]


def registered() -> dict[str, str]:
    """Architectures by the package of their model, from the engine's registry."""
    found = {}
    for node in ast.walk(tree("model_executor/models/registry.py")):
        if isinstance(node, ast.Dict):
            for name, place in zip(node.keys, node.values, strict=True):
                if isinstance(name, ast.Constant) and isinstance(place, ast.Tuple):
                    found[str(name.value)] = str(ast.literal_eval(place.elts[0]))
    return found


@pytest.mark.parametrize(
    ("planner", "package"),
    [
        (deepseek_v41, "vllm.models.deepseek_v41"),
        (deepseek_v4, "vllm.models.deepseek_v4"),
        (kimi_k3, "vllm.models.kimi_k3"),
        (minimax_m3, "vllm.models.minimax_m3"),
    ],
)
def test_architectures_are_those_of_the_engines_registry(planner: Any, package: str) -> None:
    models = registered()
    drafts = {a for a in models if "MTP" in a or a.startswith(("DSpark", "Eagle"))}
    theirs = {a for a, place in models.items() if place == package} - drafts
    assert set(planner.ARCHITECTURES) == theirs


def test_model_types_are_those_of_the_engines_configurations() -> None:
    types = {
        str(ast.literal_eval(node.value))
        for file in ("deepseek_v41", "kimi_k3", "kimi_linear", "minimax_m3")
        for cls in tree(f"transformers_utils/configs/{file}.py").body
        if isinstance(cls, ast.ClassDef)
        for node in cls.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "model_type"
    }
    ours = {t for p in (deepseek_v41, kimi_k3, minimax_m3) for t in p.MODEL_TYPES}
    assert ours <= types
    # Neither a vision tower nor a draft is a model of its own.
    assert types - ours == {"kimi_k3_vision", "minimax_m3_mtp"}
    for name in ours:
        config = {"model_config": {"hf_config": {"model_type": name}}}
        assert family_of(read_engine_config(config)) is not None
