"""What is done when vLLM loads a layer's weights, first and again; methods may be shared by layers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mono_runtime.errors import InvalidValue
from mono_runtime.hooks.deepseek_v41.reload import (
    follow_loading,
    loading_of,
    weights_of,
)
from mono_runtime.hooks.deepseek_v41.weights import Layout, WeightsMismatch
from mono_runtime.hooks.deepseek_v41.weights_gfx942 import CopyRefused, copy_experts, copy_linear

ON_942 = Layout("gfx942", 4, 384)
ON_950 = Layout("gfx950", 4, 384)
INTER, PADDED, HIDDEN = 576, 640, 256
LINEARS = ("attn.fused_wqa_wkv", "attn.wq_b", "attn.wo_a", "attn.wo_b")
SHARED = ("ffn.shared_experts.gate_up_proj", "ffn.shared_experts.down_proj")


class QuantMethod:
    """vLLM's, as far as loading goes: it is given a module, and changes its tensors."""

    def __init__(self, *, experts: bool = False) -> None:
        self.experts = experts
        self.processed: list[Any] = []

    def process_weights_after_loading(self, layer: Any) -> None:
        """Dequantise a dense weight; convert the experts and free their plain scales."""
        self.processed.append(layer)
        if self.experts:
            layer.seen = layer.w13_weight.clone(), layer.w2_weight.clone()
            layer.w13_weight = layer.w13_weight.flip(1)
            del layer.w13_weight_scale, layer.w2_weight_scale
        else:
            factor = torch.exp2(layer.weight_scale.float() - 127)
            factor = factor.repeat_interleave(32, 0).repeat_interleave(32, 1)
            layer.weight = (layer.weight.float() * factor).bfloat16()


class Module(SimpleNamespace):
    """A module; unlike a namespace it is itself, as torch's are."""

    __hash__ = object.__hash__


def drawn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.manual_seed(seed))


def layer_of(linear: QuantMethod, experts: QuantMethod) -> Any:
    """A layer whose dense modules share one method, as layers of vLLM may."""
    return Module(
        attn=Module(
            **{p.split(".")[1]: Module(quant_method=linear, prefix=f"l.{p}") for p in LINEARS}
        ),
        ffn=Module(
            experts=Module(routed_experts=Module(quant_method=experts, prefix="l.ffn.experts")),
            shared_experts=Module(
                gate_up_proj=Module(quant_method=linear), down_proj=Module(quant_method=linear)
            ),
        ),
    )


def at(layer: Any, path: str) -> Any:
    for name in path.split("."):
        layer = getattr(layer, name)
    return layer


def fill_linear(module: Any, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What a load leaves in a dense module: e4m3 bytes and codes."""
    data = drawn(32, 128, seed=seed)
    data[(data & 0x7F) == 0x7F] = 0
    module.weight = data.view(torch.float8_e4m3fn)
    module.weight_scale = drawn(1, 4, seed=seed) % 8 + 118
    return module.weight, module.weight_scale


def fill_experts(module: Any, seed: int, *, padding: int = 0) -> tuple[torch.Tensor, ...]:
    """What a load leaves in the experts: FP4, padded with what memory held."""
    w13, w2 = drawn(2, 2 * PADDED, HIDDEN // 2, seed=seed), drawn(2, HIDDEN, PADDED // 2, seed=seed)
    w13.view(2, 2, PADDED, -1)[:, :, INTER:] = padding
    w2[:, :, INTER // 2 :] = padding
    module.w13_weight, module.w2_weight = w13, w2
    module.w13_weight_scale = drawn(2, 2 * PADDED, HIDDEN // 32, seed=seed)
    module.w2_weight_scale = drawn(2, HIDDEN, PADDED // 32, seed=seed)
    return w13.clone(), module.w13_weight_scale, w2.clone(), module.w2_weight_scale


def process(module: Any) -> None:
    """As vLLM's loader calls it."""
    module.quant_method.process_weights_after_loading(module)


@pytest.fixture
def layer() -> Any:
    return layer_of(QuantMethod(), QuantMethod(experts=True))


def test_copies_of_dense_weights_are_made_of_what_vllm_dequantised(layer: Any) -> None:
    loading = follow_loading(layer, ON_942)
    loaded = {path: fill_linear(at(layer, path), i) for i, path in enumerate((*LINEARS, *SHARED))}
    for path in loaded:
        process(at(layer, path))
    names = dict(zip((*LINEARS, *SHARED), ("wqkv", "wqb", "woa", "wob", "sgu", "sw2"), strict=True))
    assert set(loading.tensors) == {n for name in names.values() for n in (name, f"{name}_s")}
    for path, name in names.items():
        wanted = copy_linear(*loaded[path])
        assert torch.equal(loading.tensors[name], wanted.codes)
        assert torch.equal(loading.tensors[f"{name}_s"], wanted.scales)


def test_experts_are_copied_before_vllm_converts_them_and_frees_their_scales(layer: Any) -> None:
    loading = follow_loading(layer, ON_942)
    experts = layer.ffn.experts.routed_experts
    plain = fill_experts(experts, 1)
    process(experts)
    assert not hasattr(experts, "w13_weight_scale")
    wanted = copy_experts(*plain, INTER)
    for name in ("w13", "w13_s", "w2", "w2_s"):
        assert torch.equal(loading.tensors[name], getattr(wanted, name))


def test_a_reload_writes_into_the_first_copies(layer: Any) -> None:
    loading = follow_loading(layer, ON_942)
    experts, linear = layer.ffn.experts.routed_experts, layer.attn.wo_b
    fill_experts(experts, 1)
    fill_linear(linear, 2)
    process(experts)
    process(linear)
    first = loading.tensors
    where = {name: tensor.data_ptr() for name, tensor in first.items()}
    # vLLM reloads into memory that nobody cleared.
    plain = fill_experts(experts, 3, padding=0x77)
    dense = fill_linear(linear, 4)
    process(experts)
    process(linear)
    assert {name: t.data_ptr() for name, t in loading.tensors.items()} == where
    wanted = copy_experts(*without_padding(*plain), INTER)
    assert torch.equal(first["w13"], wanted.w13)
    assert torch.equal(first["w2"], wanted.w2)
    assert torch.equal(first["wob"], copy_linear(*dense).codes)
    assert loading.loads == 2


def without_padding(
    w13: torch.Tensor, w13_s: torch.Tensor, w2: torch.Tensor, w2_s: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Experts as they are loaded where nothing is padded."""
    halves = [
        t.view(2, 2, PADDED, -1)[:, :, :INTER].reshape(2, 2 * INTER, -1) for t in (w13, w13_s)
    ]
    down = w2[..., : INTER // 2].contiguous(), w2_s[..., : INTER // 32].contiguous()
    return (*halves, *down)


@pytest.mark.parametrize("layout", [ON_942, ON_950], ids=["gfx942", "gfx950"])
def test_vllm_converts_a_reload_with_zeros_for_padding(layer: Any, layout: Layout) -> None:
    follow_loading(layer, layout)
    experts = layer.ffn.experts.routed_experts
    fill_experts(experts, 1)
    process(experts)
    w13, _, w2, _ = fill_experts(experts, 2, padding=0x77)
    process(experts)
    seen13, seen2 = experts.seen
    for half in range(2):
        rows = slice(half * PADDED, half * PADDED + INTER)
        assert torch.equal(seen13[:, rows], w13[:, rows])
        assert not seen13[:, half * PADDED + INTER : (half + 1) * PADDED].any()
    assert torch.equal(seen2[:, :, : INTER // 2], w2[:, :, : INTER // 2])
    assert not seen2[:, :, INTER // 2 :].any()


def test_the_first_load_of_gfx950_is_left_alone(layer: Any) -> None:
    follow_loading(layer, ON_950)
    experts = layer.ffn.experts.routed_experts
    w13, _, w2, _ = fill_experts(experts, 1, padding=0x77)
    process(experts)
    assert torch.equal(experts.seen[0], w13)
    assert torch.equal(experts.seen[1], w2)


def test_weights_where_padding_is_expected_stop_the_first_load(layer: Any) -> None:
    loading = follow_loading(layer, ON_942)
    experts = layer.ffn.experts.routed_experts
    fill_experts(experts, 1, padding=0x77)
    with pytest.raises(CopyRefused, match="hold weights beyond width 576") as caught:
        process(experts)
    assert caught.value.where == "experts of l.ffn.experts"
    assert loading.tensors == {}
    assert experts.quant_method.processed == []


def test_a_reload_that_fails_leaves_the_first_copies(layer: Any) -> None:
    loading = follow_loading(layer, ON_942)
    module = layer.attn.wq_b
    fill_linear(module, 1)
    process(module)
    before = loading.tensors["wqb"].clone()
    fill_linear(module, 2)
    module.weight_scale[0, 3] = 250
    with pytest.raises(CopyRefused, match="has code 250") as caught:
        process(module)
    assert caught.value.where == "wqb of l.attn.wq_b"
    assert torch.equal(loading.tensors["wqb"], before)


def test_following_twice_is_following_once(layer: Any) -> None:
    first = follow_loading(layer, ON_942)
    assert follow_loading(layer, ON_942) is first
    assert loading_of(layer) is first
    module = layer.attn.wq_b
    fill_linear(module, 1)
    process(module)
    assert layer.attn.wq_b.quant_method.processed == [module]


def test_a_layer_is_followed_for_one_layout(layer: Any) -> None:
    follow_loading(layer, ON_942)
    with pytest.raises(InvalidValue, match=r"are followed for .* already"):
        follow_loading(layer, Layout("gfx942", 4, 384, whole=False))


def test_layers_that_share_a_method_do_not_meet(layer: Any) -> None:
    linear, experts = layer.attn.wq_b.quant_method, layer.ffn.experts.routed_experts.quant_method
    other, stranger = layer_of(linear, experts), layer_of(linear, experts)
    one, two = follow_loading(layer, ON_942), follow_loading(other, ON_942)
    loaded = []
    for i, each in enumerate((layer, other, stranger)):
        loaded.append(fill_linear(each.attn.wq_b, i))
        process(each.attn.wq_b)
    assert linear.processed == [layer.attn.wq_b, other.attn.wq_b, stranger.attn.wq_b]
    assert torch.equal(one.tensors["wqb"], copy_linear(*loaded[0]).codes)
    assert torch.equal(two.tensors["wqb"], copy_linear(*loaded[1]).codes)
    assert loading_of(stranger) is None
    # However many layers share the method, a load is one.
    fill_experts(other.ffn.experts.routed_experts, 5)
    process(other.ffn.experts.routed_experts)
    assert (one.loads, two.loads) == (0, 1)


def test_the_ffn_launch_alone_needs_no_copies_of_the_attention(layer: Any) -> None:
    loading = follow_loading(layer, Layout("gfx942", 4, 384, whole=False))
    for path in (*LINEARS, *SHARED):
        fill_linear(at(layer, path), 1)
        process(at(layer, path))
    assert set(loading.tensors) == {"sgu", "sgu_s", "sw2", "sw2_s"}


def test_gfx950_makes_no_copies(layer: Any) -> None:
    loading = follow_loading(layer, ON_950)
    fill_linear(layer.attn.wq_b, 1)
    process(layer.attn.wq_b)
    assert loading.tensors == {}


def test_what_the_method_returns_and_takes_is_passed_on(layer: Any) -> None:
    calls = []
    layer.attn.wq_b.quant_method.process_weights_after_loading = lambda *a, **k: (
        calls.append((a, k)) or "result"
    )
    follow_loading(layer, ON_942)
    module = layer.attn.wq_b
    fill_linear(module, 1)
    found = module.quant_method.process_weights_after_loading(module, 5, on="cpu")
    assert found == "result"
    assert calls == [((module, 5), {"on": "cpu"})]


def test_a_layer_without_the_modules_is_named(layer: Any) -> None:
    layer.ffn.shared_experts = None
    with pytest.raises(WeightsMismatch, match=r"ffn\.shared_experts\.gate_up_proj is None"):
        follow_loading(layer, ON_942)
    assert loading_of(layer) is None


def test_weights_that_were_loaded_before_have_no_copies(layer: Any) -> None:
    with pytest.raises(WeightsMismatch, match="gfx942's copy of wqkv"):
        weights_of(layer, ON_942)
