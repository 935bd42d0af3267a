"""Our choice beside the one of vLLM's own ``oracle/unquantized.py``, over a grid of layers and settings.

The oracle's file, its base class, the activations and the environment variables are the wheel's. What it
imports beside them (platform, experts, logger) is stood in for, and says what the test wants to be said.
"""

from __future__ import annotations

import ast
import importlib.util
import itertools
import random
import re
import sys
import types
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import torch
from vllm_wheel import wheel

from mono_build.sources.wheel import unpacked
from mono_build.toolchain.hashing import file_sha256
from mono_runtime.errors import InvalidValue
from mono_runtime.hooks.moe_oracle import (
    Backend,
    BackendUnsupported,
    MonoOffer,
    NoBackend,
    Platform,
    Selection,
    aiter_intermediate_alignment,
    round_up_sizes,
    select,
    zero_padding,
)
from mono_runtime.hooks.moe_oracle.backends import QUANTISED_ONLY, REQUESTS
from mono_runtime.hooks.moe_oracle.engine import of_layer

pytestmark = pytest.mark.network

MOE = "vllm.model_executor.layers.fused_moe"
REAL = ("vllm.envs", f"{MOE}.activation", f"{MOE}.oracle.base", f"{MOE}.oracle.unquantized")
KERNEL_CONFIG = "vllm/config/kernel.py"

# Which classes run a backend, in the order to try them, and the module each is looked for in.
EXPERTS = {
    "trtllm_bf16_moe": ("TrtLlmBf16ExpertsMonolithic", "TrtLlmBf16ExpertsModular"),
    "flashinfer_cutlass_moe": ("FlashInferExperts",),
    "rocm_aiter_moe": ("AiterUnquantizedExperts",),
    "triton_moe": ("TritonExperts",),
    "fused_batched_moe": ("BatchedTritonExperts",),
    "moonep_experts": ("MoonEPExperts",),
    "xpu_moe": ("XPUExperts",),
    "cpu_moe": (
        "X86CPUUnquantizedExperts",
        "ArmCPUUnquantizedExperts",
        "PowerCPUUnquantizedExperts",
        "CPUUnquantizedExperts",
    ),
    "trtllm_lora_moe": ("TrtLlmBf16LoRAExperts",),
}
CLASSES = [name for names in EXPERTS.values() for name in names]


class Format(Enum):
    """vLLM's ``FusedMoEActivationFormat``: the values are tuples there."""

    Standard = ("standard",)
    BatchedExperts = ("batched_experts",)


class World:
    """What the stand-ins answer, and what vLLM's oracle logged."""

    def __init__(self) -> None:
        self.platform = Platform.ROCM
        self.hopper = False
        self.rdna = False
        self.able: set[tuple[str, Format]] = set()
        self.logged: list[tuple[str, str]] = []


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with the files of the wheel that are compared with; skips where only kernels were given."""
    path = wheel(REAL[-1].replace(".", "/") + ".py")
    if path.is_dir():
        return path
    cache = tmp_path_factory.mktemp("engine")
    return unpacked(path, file_sha256(path), "vllm/", cache).root


@pytest.fixture(scope="module")
def world(sources: Path) -> Iterator[World]:
    """vLLM's oracle, imported as in a server, beside stand-ins for what it imports."""
    world = World()
    kept = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "vllm"}
    for name in kept:
        del sys.modules[name]
    try:
        stand_in(world)
        for name in REAL:
            real(sources, name)
        yield world
    finally:
        for name in [n for n in sys.modules if n.split(".")[0] == "vllm"]:
            del sys.modules[name]
        sys.modules.update(kept)


def module(name: str, **attributes: object) -> types.ModuleType:
    """A module of that name, with its parents as empty packages."""
    for parent in itertools.accumulate(name.split(".")[:-1], "{}.{}".format):
        if parent not in sys.modules:
            sys.modules[parent] = types.ModuleType(parent)
            sys.modules[parent].__path__ = []
    made = sys.modules[name] = types.ModuleType(name)
    vars(made).update(attributes)
    parent, _, child = name.rpartition(".")
    setattr(sys.modules[parent], child, made)
    return made


def real(sources: Path, name: str) -> None:
    path = sources / (name.replace(".", "/") + ".py")
    module(name)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    made = sys.modules[name] = importlib.util.module_from_spec(spec)
    parent, _, child = name.rpartition(".")
    setattr(sys.modules[parent], child, made)
    spec.loader.exec_module(made)


def experts(world: World, name: str) -> type:
    def is_supported_config(
        cls: type, config: object, weights: None, activations: None, layout: Format
    ) -> tuple[bool, str | None]:
        assert cls.__name__ == name
        able = (name, layout) in world.able
        # One class gives no reason, as some of vLLM's do.
        return able, None if able or name == "XPUExperts" else f"{name} cannot run {layout.name}"

    return type(name, (), {"is_supported_config": staticmethod(is_supported_config)})


def stand_in(world: World) -> None:
    def log(level: str) -> Any:
        return lambda text, *values: world.logged.append((level, text % values if values else text))

    logger = types.SimpleNamespace(
        **{f"{level}_once": log(level) for level in ("info", "warning", "debug")}
    )
    platform = types.SimpleNamespace(
        is_device_capability_family=lambda family: family == 90 and world.hopper,
        is_tpu=lambda: world.platform is Platform.TPU,
        is_out_of_tree=lambda: world.platform is Platform.OUT_OF_TREE,
        is_rocm=lambda: world.platform is Platform.ROCM,
        is_cuda=lambda: world.platform is Platform.CUDA,
        is_xpu=lambda: world.platform is Platform.XPU,
        is_cpu=lambda: world.platform is Platform.CPU,
    )
    nothing = dict.fromkeys(
        (
            "align_moe_weights_for_fi",
            "convert_moe_weights_to_flashinfer_trtllm_block_layout",
            "swap_w13_to_w31",
        )
    )
    module("vllm.logger", init_logger=lambda name: logger)
    module("vllm.platforms", current_platform=platform)
    module(
        "vllm._aiter_ops",
        rocm_aiter_ops=types.SimpleNamespace(is_rdna_aiter_enabled=lambda: world.rdna),
    )
    module("vllm.config.kernel", MoEBackend=str)
    module("vllm.utils.math_utils", round_up=lambda size, step: -(-size // step) * step)
    module(f"{MOE}.config", FusedMoEConfig=object, FusedMoEQuantConfig=object)
    module(f"{MOE}.all2all_utils", maybe_make_prepare_finalize=None)
    module(
        f"{MOE}.modular_kernel",
        FusedMoEActivationFormat=Format,
        FusedMoEExperts=object,
        FusedMoEKernel=object,
    )
    module("vllm.model_executor.layers.quantization.utils.flashinfer_utils", **nothing)
    for name, classes in EXPERTS.items():
        module(f"{MOE}.experts.{name}", **{c: experts(world, c) for c in classes})


def layer(**facts: Any) -> types.SimpleNamespace:
    """What the oracle reads of a ``FusedMoEConfig``."""
    activation = sys.modules[f"{MOE}.activation"].MoEActivation(facts["activation"])
    return types.SimpleNamespace(
        hidden_dim_unpadded=2880,
        intermediate_size_per_partition=facts["intermediate"],
        intermediate_size_per_partition_unpadded=facts["intermediate"],
        activation=activation,
        moe_backend=facts["moe_backend"],
        is_lora_enabled=facts["lora"],
        moe_parallel_config=types.SimpleNamespace(
            dp_size=facts["dp"],
            use_batched_activation_format=facts["batched"],
            use_moonep_kernels=facts["moonep"],
            all2all_backend="moonep" if facts["moonep"] else None,
        ),
    )


ENVIRONMENTS: list[dict[str, str]] = [
    {
        name: text
        for name, text in (("VLLM_ROCM_USE_AITER", a), ("VLLM_ROCM_USE_AITER_MOE", m))
        if text
    }
    for a in ("", "1", "0", "TRUE")
    for m in ("", "True", "false")
]
GRID = {
    "platform": list(Platform),
    "moe_backend": ["auto", "marlin", *REQUESTS, "deep_gemm"],
    "batched": [False, True],
    "lora": [False, True],
    "moonep": [False, True],
    "activation": ["silu", "swigluoai", "relu2_no_mul"],
    "dp": [1, 2],
    "hopper": [False, True],
    "rdna": [False, True],
    "environ": ENVIRONMENTS,
}


def cases(count: int, seed: int, **fixed: Any) -> Iterator[dict[str, Any]]:
    """Seeded picks from the grid; every class is able in some format or in none."""
    numbers = random.Random(seed)
    for _ in range(count):
        case = {name: numbers.choice(values) for name, values in GRID.items()} | fixed
        case["intermediate"] = numbers.choice([128, 192, 200, 768])
        share = numbers.choice([0.15, 0.5, 0.85])
        case["able"] = {
            (name, layout) for name in CLASSES for layout in Format if numbers.random() < share
        }
        yield case


def set_up(world: World, case: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    world.platform, world.hopper, world.rdna = case["platform"], case["hopper"], case["rdna"]
    world.able = case["able"]
    world.logged.clear()
    for name in ("VLLM_ROCM_USE_AITER", "VLLM_ROCM_USE_AITER_MOE"):
        monkeypatch.delenv(name, raising=False)
    for name, text in case["environ"].items():
        monkeypatch.setenv(name, text)
    return layer(**case)


def theirs(subject: Any) -> tuple[str, str | None] | str:
    """vLLM's answer: the backend and its class, or which kind of error."""
    try:
        backend, chosen = sys.modules[REAL[-1]].select_unquantized_moe_backend(subject)
    except ValueError as error:
        return "unknown" if "is not supported for unquantized MoE" in str(error) else "unsupported"
    except NotImplementedError:
        return "none"
    return backend.value, chosen and chosen.__name__


def ours(subject: Any, mono: MonoOffer | None = None) -> tuple[Selection | None, Any]:
    try:
        found = select(*of_layer(subject, mono))
    except InvalidValue:
        return None, "unknown"
    except BackendUnsupported:
        return None, "unsupported"
    except NoBackend:
        return None, "none"
    return found, (found.backend.value, found.experts and found.experts.name)


def test_the_choice_is_that_of_the_engine(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[Any] = set()
    for case in cases(20_000, seed=1, lora=False):
        subject = set_up(world, case, monkeypatch)
        expected = theirs(subject)
        logged = list(world.logged)
        found, answer = ours(subject)
        assert answer == expected, case
        seen.add(expected if isinstance(expected, str) else expected[0])
        # Each refusal that the engine tried in its order is one of ours, and its warning is one too.
        if found is not None and found.backend not in (Backend.TPU, Backend.OUT_OF_TREE):
            told = [text for level, text in logged if level == "debug"]
            reasons = [m[1] for m in (re.search(r" since (.*)\.$", text) for text in told) if m]
            given = [r.reason for r in found.rejections]
            assert [r for r in given if r in reasons] == reasons, case
            assert found.fallback == any(level == "warning" for level, _ in logged), case
            if found.fallback:
                warned = next(text for level, text in logged if level == "warning")
                assert "AiterUnquantizedExperts cannot run" in warned
                assert "AiterUnquantizedExperts cannot run" in str(found.warning)
                assert warned.rpartition(": ")[2] == str(found.warning).rpartition(": ")[2]
    assert seen == {b.value for b in Backend if b is not Backend.MONO} | {
        "unknown",
        "unsupported",
        "none",
    }


def test_the_order_is_that_of_the_engine(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = {(name, layout) for name in CLASSES for layout in Format}
    asked = [p for p in Platform if p not in (Platform.TPU, Platform.OUT_OF_TREE)]
    for platform, dp, hopper, activation in itertools.product(
        asked, (1, 2), (False, True), GRID["activation"]
    ):
        case = next(cases(1, seed=0)) | {
            "platform": platform,
            "dp": dp,
            "hopper": hopper,
            "activation": activation,
            "able": everything,
            "environ": {},
            "moe_backend": "auto",
            "lora": False,
            "moonep": False,
        }
        subject = set_up(world, case, monkeypatch)
        order = sys.modules[REAL[-1]]._get_priority_backends(subject)
        found, _ = ours(subject)
        assert found is not None
        assert [b.value for b in found.order] == [b.value for b in order], case


def test_adapters_are_served_as_by_the_engine_where_both_ask(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.33.0 takes Triton for adapters without asking it, and in any format. Newer releases ask; so do we."""
    asked = 0
    for case in cases(3_000, seed=2, lora=True):
        subject = set_up(world, case, monkeypatch)
        expected = theirs(subject)
        _, answer = ours(subject)
        own = case["platform"] in (Platform.TPU, Platform.OUT_OF_TREE)
        batched = case["batched"] or case["moe_backend"] == "batched_triton"
        triton = ("TritonExperts", Format.Standard) in world.able
        if not own and (batched or (expected[0] == "TRITON" and not triton)):
            assert answer == "unsupported", case
        else:
            asked += 1
            assert answer == expected, case
    assert asked > 500


def test_mono_launches_change_nothing_behind_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    came_first = 0
    for case in cases(3_000, seed=3, moonep=False, lora=False):
        subject = set_up(world, case, monkeypatch)
        _, without = ours(subject)
        found, answer = ours(subject, MonoOffer())
        if found is not None and found.backend is Backend.MONO:
            came_first += 1
            assert case["platform"] is Platform.ROCM
            assert found.other_steps is not None
            chosen = found.other_steps.experts
            assert (found.other_steps.backend.value, chosen and chosen.name) == without, case
        else:
            assert answer == without, case
    assert came_first > 20


def test_sizes_are_rounded_as_by_the_engine(world: World) -> None:
    oracle = sys.modules[REAL[-1]]
    for size in range(1, 2100):
        assert aiter_intermediate_alignment(size) == oracle.aiter_moe_intermediate_alignment(size)
        for member in oracle.UnquantizedMoeBackend:
            expected = oracle.unquantized_round_up_hidden_size_and_intermediate_size(
                member, 2880, size
            )
            assert round_up_sizes(Backend(member.value), 2880, size) == expected


@pytest.mark.parametrize(("filled", "allocated"), [(5, 12), (12, 12), (1, 64)])
@pytest.mark.parametrize("gated", [True, False])
def test_padding_is_zeroed_as_by_the_engine(
    world: World, filled: int, allocated: int, gated: bool
) -> None:
    numbers = torch.Generator().manual_seed(4)
    w13 = torch.randn(2, (2 if gated else 1) * allocated, 3, generator=numbers)
    w2 = torch.randn(2, 3, allocated, generator=numbers)
    expected = w13.clone(), w2.clone()
    sizes = types.SimpleNamespace(
        intermediate_size_per_partition=allocated,
        intermediate_size_per_partition_unpadded=filled,
        is_act_and_mul=gated,
    )
    sys.modules[REAL[-1]]._zero_intermediate_padding(sizes, *expected)
    zero_padding(w13, w2, filled=filled, allocated=allocated, gated=gated)
    assert torch.equal(w13, expected[0])
    assert torch.equal(w2, expected[1])


def test_the_names_to_ask_with_are_options_of_the_engine(sources: Path) -> None:
    tree = ast.parse((sources / KERNEL_CONFIG).read_text())
    names = next(
        ast.literal_eval(node.value.slice)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "MoEBackend"
        and isinstance(node.value, ast.Subscript)
    )
    assert {"auto", *REQUESTS, *QUANTISED_ONLY} <= set(names)
    assert "mono" not in names
