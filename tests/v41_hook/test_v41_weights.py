"""What a layer's tensors have to be, which launch reads which, and how they are taken from vLLM's layer."""

from __future__ import annotations

import pytest
import torch
from v41_weights_kit import GFX950_TP2, GFX950_TP4, copies_942, layer_of, nothing

from mono_runtime.errors import InvalidValue
from mono_runtime.hooks.deepseek_v41.layer_weights import take_weights
from mono_runtime.hooks.deepseek_v41.weights import Layout, WeightsMismatch, problems

TP4 = Layout("gfx950", 4, 384)
ON_942 = Layout("gfx942", 4, 384)


def draft(tensors: dict[str, tuple[tuple[int, ...], torch.dtype]]) -> dict:
    """The tensors of a draft layer of 128 experts."""
    of_experts = {
        "ffn.gate.weight": (128, 5120),
        "ffn.gate.e_score_correction_bias": (128,),
        "ffn.experts.routed_experts.w13_weight": (128, 1280, 2560),
        "ffn.experts.routed_experts.w13_weight_scale": (163840, 160),
        "ffn.experts.routed_experts.w2_weight": (128, 5120, 320),
        "ffn.experts.routed_experts.w2_weight_scale": (655360, 24),
    }
    return {path: (of_experts.get(path, shape), dtype) for path, (shape, dtype) in tensors.items()}


@pytest.mark.parametrize(
    ("layout", "tensors"),
    [
        (TP4, GFX950_TP4),
        (Layout("gfx950", 2, 384), GFX950_TP2),
        (Layout("gfx950", 4, 128), draft(GFX950_TP4)),
    ],
    ids=["tp4", "tp2", "draft"],
)
def test_a_loaded_layer_fits(layout: Layout, tensors: dict) -> None:
    weights = take_weights(layer_of(tensors), layout)
    assert problems(weights, layout) == ()
    assert (weights.layer, weights.ratio) == (7, 2)


def test_gfx942_reads_its_copies() -> None:
    copies = copies_942()
    weights = take_weights(layer_of(GFX950_TP4), ON_942, copies)
    assert weights.attention is not None
    taken = {**weights.arguments("k1"), **weights.arguments("k2")}
    assert all(taken[name] is tensor for name, tensor in copies.items())


def test_a_layer_whose_attention_vllm_runs_needs_no_attention_weights() -> None:
    only = {path: t for path, t in GFX950_TP4.items() if ".wq" not in path and ".wo" not in path}
    weights = take_weights(layer_of(only), Layout("gfx950", 4, 384, whole=False))
    assert weights.attention is None
    with pytest.raises(InvalidValue, match="layer 7 has no attention weights for k1"):
        weights.arguments("k1")


# The weights among the launches' arguments, of vLLM 0.33.0's build_mono_k1, _k2 and _ffn.
K1 = "hc_fn hc_scale hc_base attn_w wqkv wqkv_s qn_w kvn_w wqb wqb_s cos_sin"
FFN = "hc_fn hc_scale hc_base ffn_w gate_w bias w13 w13_s w2 w2_s sgu sgu_s sw2 sw2_s"
K2 = f"sink cos_sin woa woa_s wob wob_s {FFN}"


@pytest.mark.parametrize(("launch", "names"), [("k1", K1), ("k2", K2), ("ffn", FFN)])
def test_each_launch_gets_its_weights_by_name(launch: str, names: str) -> None:
    weights = take_weights(layer_of(GFX950_TP4), TP4)
    assert set(weights.arguments(launch)) == set(names.split())


def test_each_half_has_the_weights_of_its_own_seam() -> None:
    layer = layer_of(GFX950_TP4)
    weights = take_weights(layer, TP4)
    assert weights.arguments("k1")["hc_fn"] is layer.hc_attn_fn
    assert weights.arguments("k2")["hc_fn"] is layer.hc_ffn_fn
    assert weights.arguments("ffn")["hc_base"] is layer.hc_ffn_base


def test_a_launch_that_reads_no_weights_has_none() -> None:
    with pytest.raises(InvalidValue, match="keylist reads no weights"):
        take_weights(layer_of(GFX950_TP4), TP4).arguments("keylist")


def test_scales_of_another_type_of_one_byte_are_taken_as_bytes() -> None:
    path = "attn.wq_b.weight_scale"
    tensors = {**GFX950_TP4, path: ((256, 40), torch.float8_e8m0fnu)}
    weights = take_weights(layer_of(tensors), TP4)
    assert weights.attention is not None
    assert weights.attention.wqb_s.dtype == torch.uint8


@pytest.mark.parametrize("path", GFX950_TP4)
@pytest.mark.parametrize("change", ["shape", "type", "order"])
def test_every_tensor_is_compared(path: str, change: str) -> None:
    shape, dtype = GFX950_TP4[path]
    if change == "shape":
        other = nothing((shape[0] - 1, *shape[1:]), dtype)
        if path == "attn.rotary_emb.cos_sin_cache":
            other = nothing((65536, 32), dtype)
        if path == "attn.attn_sink":
            other = nothing((15,), dtype)
    elif change == "type":
        other = nothing(shape, torch.float16)
    else:
        # Every second element, or every second row.
        other = nothing((2 * shape[0], *shape[1:]), dtype)[::2]
    name = path.replace(".", "__")
    with pytest.raises(WeightsMismatch) as caught:
        take_weights(layer_of(GFX950_TP4, **{name: other}), TP4)
    assert caught.value.what.startswith("1 of the weights of layer 7 are not as the gfx950 kernels")
    assert caught.value.where == "layer 7"


def test_the_message_names_tensor_and_half_and_both_forms() -> None:
    changed = {
        "hc_attn_base": nothing((12,), torch.float32),
        "ffn__gate__weight": nothing((5120, 384), torch.bfloat16).T,
    }
    with pytest.raises(WeightsMismatch) as caught:
        take_weights(layer_of(GFX950_TP4, **changed), TP4)
    assert caught.value.what.splitlines()[1:] == [
        "    attention hc_base is [12] float32, contiguous; wanted [24] float32, contiguous",
        "    ffn gate_w is [384, 5120] bfloat16, not contiguous; wanted [384, 5120] bfloat16, contiguous",
    ]


def test_longer_tables_and_more_heads_than_the_rank_has_are_taken() -> None:
    changed = {
        "attn__rotary_emb__cos_sin_cache": nothing((1, 64), torch.float32),
        "attn__attn_sink": nothing((16,), torch.float32),
    }
    assert take_weights(layer_of(GFX950_TP4, **changed), TP4).ratio == 2


def test_everything_that_a_layer_lacks_is_named_at_once() -> None:
    layer = layer_of(GFX950_TP4, hc_ffn_base=None, attn__wo_b__weight_scale=None)
    layer.ffn.shared_experts = None
    with pytest.raises(WeightsMismatch) as caught:
        take_weights(layer, TP4)
    for path in ("hc_ffn_base", "attn.wo_b.weight_scale", "ffn.shared_experts.down_proj.weight"):
        assert path in caught.value.what


def test_copies_that_were_not_made_are_named() -> None:
    copies = copies_942()
    del copies["w2_s"]
    with pytest.raises(WeightsMismatch, match="gfx942's copy of w2_s") as caught:
        take_weights(layer_of(GFX950_TP4), ON_942, copies)
    assert "let the plug-in load before" in str(caught.value.fix)


def test_copies_of_the_padded_width_are_refused_on_gfx942() -> None:
    padded = copies_942(w13=nothing((384, 1280, 2560), torch.uint8))
    with pytest.raises(WeightsMismatch, match=r"ffn w13 is \[384, 1280, 2560\] uint8"):
        take_weights(layer_of(GFX950_TP4), ON_942, padded)


def test_attention_weights_have_to_be_there_just_when_they_are_read() -> None:
    weights = take_weights(layer_of(GFX950_TP4), TP4)
    without = Layout("gfx950", 4, 384, whole=False)
    assert problems(weights, without) == ("attention weights that nothing reads",)


@pytest.mark.parametrize(("tp", "experts"), [(1, 384), (8, 384), (4, 0)])
def test_no_layout_for_ranks_or_experts_that_no_kernel_takes(tp: int, experts: int) -> None:
    with pytest.raises(
        InvalidValue, match=f"no kernel takes weights of {experts} experts at TP {tp}"
    ):
        Layout("gfx950", tp, experts)
