"""gfx942's copies and the tables of weights against vLLM's own code, bit for bit."""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from v41_weights_kit import nothing

from mono_build.sources import resolve_kernels
from mono_runtime.hooks.deepseek_v41.weights import Layout, attention_table, ffn_table
from mono_runtime.hooks.deepseek_v41.weights_gfx942 import CopyRefused, copy_experts, copy_linear

pytestmark = pytest.mark.network
MONO = "vllm.models.deepseek_v41.amd.mono"


@pytest.fixture(scope="module")
def files() -> Path:
    """The directory of vLLM's kernels."""
    kernels = resolve_kernels(os.environ.get("MONO_TEST_KERNELS", "vllm==0.33.0"), os.environ)
    return kernels.root / MONO.replace(".", "/")


def module_at(path: Path, name: str) -> types.ModuleType:
    """The module of a file, imported alone."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LookupError(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def theirs(files: Path) -> Any:
    """vLLM's weights942.py, which imports torch alone."""
    name = "weights942_of_the_wheel"
    yield module_at(files / "weights942.py", name)
    del sys.modules[name]


def drawn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.manual_seed(seed))


def dense(rows: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """E4M3 bytes, -0 included and NaN not, and codes of the range that checkpoints have."""
    data = drawn(rows, k, seed=rows + k)
    data[(data & 0x7F) == 0x7F] = 0x80
    return data.view(torch.float8_e4m3fn), drawn(rows // 32, k // 32, seed=k) % 64 + 80


# Of a layer at TP 4: wqkv, wq_b, wo_b, the shared expert's gate and up, and its down, which is padded.
@pytest.mark.parametrize(
    ("rows", "k"), [(1792, 5120), (8192, 1280), (5120, 2048), (1152, 5120), (5120, 576)]
)
@pytest.mark.parametrize("form", ["bytes", "dequantised", "row scales"])
def test_dense_copies_are_vllms(theirs: Any, rows: int, k: int, form: str) -> None:
    weight, scale = dense(rows, k)
    if form != "bytes":
        factor = torch.exp2(scale.float() - 127).repeat_interleave(32, 0).repeat_interleave(32, 1)
        weight = (weight.float() * factor).bfloat16()
    if form == "row scales":
        scale = scale.repeat_interleave(32, 0)
    found = copy_linear(weight, scale)
    wanted = theirs.linear_copy(weight, scale)
    assert torch.equal(found.codes, wanted[0])
    assert torch.equal(found.scales, wanted[1])


@pytest.mark.parametrize("padded", [576, 640])
def test_copies_of_experts_are_vllms(theirs: Any, padded: int) -> None:
    w13, w2 = drawn(2, 2 * padded, 2560, seed=1), drawn(2, 5120, padded // 2, seed=2)
    w13.view(2, 2, padded, 2560)[:, :, 576:] = 0
    w2[:, :, 288:] = 0
    loaded = w13, drawn(2, 2 * padded, 160, seed=3), w2, drawn(2, 5120, padded // 32, seed=4)
    found = copy_experts(*loaded, 576)
    wanted = theirs.moe_copies(*(t.clone() for t in loaded), 576)
    assert [tuple(t.shape) for t in wanted] == [
        (2, 1152, 2560),
        (2, 1152, 160),
        (2, 5120, 288),
        (2, 5120, 18),
    ]
    for name, tensor in zip(("w13", "w13_s", "w2", "w2_s"), wanted, strict=True):
        assert torch.equal(getattr(found, name), tensor), name


def test_what_vllm_refuses_is_refused(theirs: Any) -> None:
    weight, scale = torch.full((32, 128), 1.0078125).bfloat16(), torch.full((1, 4), 127).byte()
    with pytest.raises(ValueError, match="4096 of 4096 values"):
        theirs.linear_copy(weight, scale)
    with pytest.raises(CopyRefused, match="4096 of 4096 values"):
        copy_linear(weight, scale)


# ---- the tables ----

# The arguments of ours behind the names of vLLM's classes.
ATTENTION = {
    "wqkv": "wqkv",
    "wqkv_scale": "wqkv_s",
    "wq_b": "wqb",
    "wq_b_scale": "wqb_s",
    "wo_a": "woa",
    "wo_a_scale": "woa_s",
    "wo_b": "wob",
    "wo_b_scale": "wob_s",
    "cos_sin": "cos_sin",
}
MOE = {
    name: name
    for name in (
        *("gate_w", "bias", "w13", "w13_s", "w2", "w2_s"),
        *("sgu", "sgu_s", "sw2", "sw2_s"),
    )
}


@pytest.fixture(scope="module")
def dims(files: Path) -> Any:
    """vLLM's stages/dims.py and what it imports."""
    names = [f"{MONO}.common.plan", f"{MONO}.stages.dims"]
    parents = {".".join(n.split(".")[:i]) for n in names for i in range(1, n.count(".") + 1)}
    before = {n: sys.modules.get(n) for n in (*parents, *names)}
    try:
        for parent in parents:
            sys.modules[parent] = types.ModuleType(parent)
        module_at(files / "common" / "plan.py", names[0])
        yield module_at(files / "stages" / "dims.py", names[1]).Dims
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module


def check_of(files: Path, name: str, dims: Any, gfx942: bool) -> Any:
    """A class of vLLM's runner.py, taken out of the file, as its checks are on one architecture."""
    tree = ast.parse((files / "runner.py").read_text())
    kept = {"_check_tensors", name}
    body = [
        node
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in kept
    ]
    for node in body:
        node.decorator_list = []
    # The annotations name types that are not imported here.
    future = ast.parse("from __future__ import annotations").body
    space = {
        "torch": torch,
        "GFX942": gfx942,
        "MoeDims": dims,
        "EXPERTS": 384,
        "HIDDEN": 5120,
        "HEAD_DIM": 512,
    }
    source = ast.unparse(ast.Module([*future, *body], []))
    exec(compile(source, str(files / "runner.py"), "exec"), space)
    return space[name]


def passes(owner: Any, arguments: tuple[Any, ...], table: dict, names: dict[str, str]) -> None:
    """What fits our table passes vLLM's check, and no other shape or type does."""
    method, instance = owner
    tensors = {
        n: nothing(table[ours].shape, getattr(torch, table[ours].dtype))
        for n, ours in names.items()
    }
    vars(instance).update(tensors)
    getattr(instance, method)(*arguments)
    for name, tensor in tensors.items():
        wider = nothing((*tensor.shape[:-1], tensor.shape[-1] + 1), tensor.dtype)
        for other in (wider, nothing(tuple(tensor.shape), torch.float16)):
            setattr(instance, name, other)
            with pytest.raises(AssertionError):
                getattr(instance, method)(*arguments)
        setattr(instance, name, tensor)


@pytest.mark.parametrize(("arch", "tp"), [("gfx950", 2), ("gfx950", 4), ("gfx942", 4)])
def test_the_attentions_table_is_vllms(files: Path, dims: Any, arch: str, tp: int) -> None:
    checked = check_of(files, "AttnWeights", dims, arch == "gfx942")()
    checked.layer_id = 0
    rank = SimpleNamespace(heads=64 // tp, groups=8 // tp, group_k=4096)
    passes(("check", checked), (rank,), attention_table(Layout(arch, tp, 384)), ATTENTION)


@pytest.mark.parametrize("experts", [128, 384])
@pytest.mark.parametrize(("arch", "tp"), [("gfx950", 2), ("gfx950", 4), ("gfx942", 4)])
def test_the_experts_table_is_vllms(
    files: Path, dims: Any, arch: str, tp: int, experts: int
) -> None:
    checked = check_of(files, "MonoLayerWeights", dims, arch == "gfx942")()
    method = ("check_942", (experts,)) if arch == "gfx942" else ("check", (tp, experts))
    passes((method[0], checked), method[1], ffn_table(Layout(arch, tp, experts)), MOE)
