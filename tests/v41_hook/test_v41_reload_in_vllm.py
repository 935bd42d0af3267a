"""A reload by vLLM's own code: its files that restore, fill, process and put back a model's tensors.

What they import of vLLM beside each other is stood in for, and so are the modules that are loaded.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from vllm_wheel import wheel

from mono_build.sources.wheel import unpacked
from mono_build.toolchain.hashing import file_sha256
from mono_runtime.hooks.deepseek_v41.reload import follow_loading
from mono_runtime.hooks.deepseek_v41.weights import Layout
from mono_runtime.hooks.deepseek_v41.weights_gfx942 import copy_experts, copy_linear

pytestmark = pytest.mark.network

RELOAD = "vllm.model_executor.model_loader.reload"
INTER, PADDED, HIDDEN, EXPERTS = 576, 640, 256, 2


class QuantizeMethodBase:
    """vLLM's base class; its loader asks for nothing but being one."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with vLLM's reloading; skips where only kernels were given."""
    place = RELOAD.replace(".", "/")
    path = wheel(place)
    if path.is_dir():
        return path
    return unpacked(path, file_sha256(path), f"{place}/", tmp_path_factory.mktemp("reload")).root


def module(name: str, **attributes: object) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__path__ = []
    vars(made).update(attributes)
    sys.modules[name] = made
    return made


@pytest.fixture(scope="module")
def layerwise(sources: Path) -> Iterator[Any]:
    """vLLM's layerwise.py."""
    kept = {name: m for name, m in sys.modules.items() if name.split(".")[0] == "vllm"}
    for name in kept:
        del sys.modules[name]
    quiet = types.SimpleNamespace(
        debug=lambda *_: None, warning=lambda *_: None, warning_once=lambda *_: None
    )
    loader = "vllm.model_executor.model_loader"
    quantization = "vllm.model_executor.layers.quantization"
    try:
        for name in ("vllm", "vllm.model_executor", "vllm.model_executor.layers", loader):
            module(name)
        module(quantization)
        module("vllm.config", ModelConfig=object)
        module("vllm.logger", init_logger=lambda _: quiet)
        module("vllm.model_executor.layers.attention", is_deferred_attention_layer=lambda _: False)
        module(f"{quantization}.base_config", QuantizeMethodBase=QuantizeMethodBase)
        module(f"{quantization}.online")
        module(f"{quantization}.online.fp8", OnlineLinearBase=type("OnlineLinearBase", (), {}))
        module(
            f"{quantization}.online.moe_base",
            OnlineMoEMethodBase=type("OnlineMoEMethodBase", (), {}),
        )
        module(f"{loader}.weight_utils", default_weight_loader=plain_loader)
        module(
            f"{loader}.utils",
            online_quantization_timing_context=lambda *_: contextlib.nullcontext(),
        )
        module(RELOAD).__path__ = [str(sources / RELOAD.replace(".", "/"))]
        yield importlib.import_module(f"{RELOAD}.layerwise")
    finally:
        for name in [n for n in sys.modules if n.split(".")[0] == "vllm"]:
            del sys.modules[name]
        sys.modules.update(kept)


@pytest.fixture(autouse=True)
def _visible_garbage() -> Iterator[None]:
    """Memory that nobody writes holds the largest numbers, so that reading it is noticed."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)


def plain_loader(param: torch.Tensor, loaded: torch.Tensor) -> None:
    param.data.copy_(loaded)


def narrow_loader(param: torch.Tensor, loaded: torch.Tensor) -> None:
    """As vLLM's experts load: the checkpoint's part, and not the padding behind it."""
    halves = 2 if param.shape[1] == 2 * PADDED else 1
    into = param.data.view(EXPERTS, halves, param.shape[1] // halves, param.shape[2])
    rows, columns = loaded.shape[1] // halves, loaded.shape[2]
    into[:, :, :rows, :columns].copy_(loaded.view(EXPERTS, halves, rows, columns))


def parameter(tensor: torch.Tensor, loader: Any) -> nn.Parameter:
    made = nn.Parameter(tensor, requires_grad=False)
    made.weight_loader = loader
    return made


class ExpertsMethod(QuantizeMethodBase):
    """Converts experts to a form of its own and frees what they were made of, as Triton's does."""

    def process_weights_after_loading(self, layer: Any) -> None:
        layer.converted.append((layer.w13_weight.data.clone(), layer.w2_weight.data.clone()))
        layer.w13_weight = parameter(layer.w13_weight.data.flip(1), narrow_loader)
        layer.w13_weight_scale = layer.w2_weight_scale = None


class LinearMethod(QuantizeMethodBase):
    """Dequantises, as vLLM does on gfx942."""

    def process_weights_after_loading(self, layer: Any) -> None:
        factor = torch.exp2(layer.weight_scale.data.float() - 127).repeat_interleave(32, 1)
        values = (layer.weight.data.float() * factor).bfloat16()
        layer.weight = parameter(values, plain_loader)


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.quant_method = ExpertsMethod()
        self.converted: list[tuple[torch.Tensor, torch.Tensor]] = []
        sizes = {
            "w13_weight": (2 * PADDED, HIDDEN // 2),
            "w13_weight_scale": (2 * PADDED, HIDDEN // 32),
            "w2_weight": (HIDDEN, PADDED // 2),
            "w2_weight_scale": (HIDDEN, PADDED // 32),
        }
        for name, size in sizes.items():
            zeros = torch.zeros(EXPERTS, *size, dtype=torch.uint8)
            setattr(self, name, parameter(zeros, narrow_loader))


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.quant_method = LinearMethod()
        self.weight = parameter(torch.zeros(64, 128).to(torch.float8_e4m3fn), plain_loader)
        # A code for each row: vLLM repeats those of the checkpoint's blocks.
        self.weight_scale = parameter(torch.zeros(64, 4, dtype=torch.uint8), plain_loader)


def model() -> nn.Module:
    """A layer's FFN, by the attributes that vLLM's layers have."""
    layer = nn.Module()
    layer.ffn = nn.Module()
    layer.ffn.experts = nn.Module()
    layer.ffn.experts.routed_experts = Experts()
    layer.ffn.shared_experts = nn.Module()
    layer.ffn.shared_experts.gate_up_proj = Linear()
    layer.ffn.shared_experts.down_proj = Linear()
    return layer


def drawn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.manual_seed(seed))


def checkpoint(seed: int) -> dict[str, torch.Tensor]:
    """The layer's tensors of a checkpoint, without padding."""
    experts, shared = "ffn.experts.routed_experts", "ffn.shared_experts"
    found = {
        f"{experts}.w13_weight": drawn(EXPERTS, 2 * INTER, HIDDEN // 2, seed=seed),
        f"{experts}.w13_weight_scale": drawn(EXPERTS, 2 * INTER, HIDDEN // 32, seed=seed),
        f"{experts}.w2_weight": drawn(EXPERTS, HIDDEN, INTER // 2, seed=seed),
        f"{experts}.w2_weight_scale": drawn(EXPERTS, HIDDEN, INTER // 32, seed=seed),
    }
    for number, name in enumerate(("gate_up_proj", "down_proj")):
        data = drawn(64, 128, seed=seed + number)
        data[(data & 0x7F) == 0x7F] = 0
        found[f"{shared}.{name}.weight"] = data.view(torch.float8_e4m3fn)
        codes = drawn(2, 4, seed=seed + number) % 8 + 118
        found[f"{shared}.{name}.weight_scale"] = codes.repeat_interleave(32, 0)
    return found


def load(layer: nn.Module, weights: dict[str, torch.Tensor]) -> None:
    for name, tensor in weights.items():
        param = layer.get_parameter(name)
        param.weight_loader(param, tensor)


def first_load(layer: nn.Module, weights: dict[str, torch.Tensor]) -> None:
    """As vLLM's loader does it: all weights, then every module's quant method."""
    load(layer, weights)
    for each in layer.modules():
        if isinstance(getattr(each, "quant_method", None), QuantizeMethodBase):
            each.quant_method.process_weights_after_loading(each)


def reload(layerwise: Any, layer: nn.Module, weights: dict[str, torch.Tensor]) -> None:
    layerwise.initialize_layerwise_reload(layer)
    load(layer, weights)
    layerwise.finalize_layerwise_reload(layer, None)


def test_a_reload_of_vllms_renews_the_copies_in_place(layerwise: Any) -> None:
    layer = model()
    layerwise.record_metadata_for_reloading(layer)
    loading = follow_loading(layer, Layout("gfx942", 4, EXPERTS, whole=False))
    first_load(layer, checkpoint(1))
    where = {name: tensor.data_ptr() for name, tensor in loading.tensors.items()}
    again = checkpoint(5)
    reload(layerwise, layer, again)
    assert loading.loads == 2
    assert {name: tensor.data_ptr() for name, tensor in loading.tensors.items()} == where
    names = ("w13_weight", "w13_weight_scale", "w2_weight", "w2_weight_scale")
    wanted = copy_experts(*(again[f"ffn.experts.routed_experts.{n}"] for n in names), INTER)
    for name in ("w13", "w13_s", "w2", "w2_s"):
        assert torch.equal(loading.tensors[name], getattr(wanted, name)), name
    for name, path in (("sgu", "gate_up_proj"), ("sw2", "down_proj")):
        shared = f"ffn.shared_experts.{path}"
        dense = copy_linear(again[f"{shared}.weight"], again[f"{shared}.weight_scale"])
        assert torch.equal(loading.tensors[name], dense.codes), name
        assert torch.equal(loading.tensors[f"{name}_s"], dense.scales), name


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_vllm_converts_a_reload_without_what_memory_held(layerwise: Any, arch: str) -> None:
    layer = model()
    layerwise.record_metadata_for_reloading(layer)
    follow_loading(layer, Layout(arch, 4, EXPERTS, whole=False))
    first_load(layer, checkpoint(1))
    reload(layerwise, layer, checkpoint(5))
    experts: Any = layer.ffn.experts.routed_experts
    w13, w2 = experts.converted[1]
    halves = w13.view(EXPERTS, 2, PADDED, -1)
    assert halves[:, :, :INTER].any()
    assert not halves[:, :, INTER:].any()
    assert not w2[:, :, INTER // 2 :].any()


def test_without_the_hook_a_reload_of_vllms_leaves_garbage_in_the_padding(layerwise: Any) -> None:
    layer = model()
    layerwise.record_metadata_for_reloading(layer)
    first_load(layer, checkpoint(1))
    reload(layerwise, layer, checkpoint(5))
    experts: Any = layer.ffn.experts.routed_experts
    assert (experts.converted[1][0].view(EXPERTS, 2, PADDED, -1)[:, :, INTER:] == 255).all()
