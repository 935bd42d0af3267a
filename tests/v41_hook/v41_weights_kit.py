"""Layers of vLLM's shape with tensors that take no memory, and what their tensors have to be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

# By attribute path on a decoder layer: shape and type, as vLLM 0.33.0 holds them for gfx950 at TP 4.
GFX950_TP4: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
    "hc_attn_fn": ((24, 20480), torch.float32),
    "hc_attn_scale": ((3,), torch.float32),
    "hc_attn_base": ((24,), torch.float32),
    "attn_norm.weight": ((5120,), torch.bfloat16),
    "attn.fused_wqa_wkv.weight": ((1792, 5120), torch.float8_e4m3fn),
    "attn.fused_wqa_wkv.weight_scale": ((56, 160), torch.uint8),
    "attn.q_norm.weight": ((1280,), torch.bfloat16),
    "attn.kv_norm.weight": ((512,), torch.bfloat16),
    "attn.wq_b.weight": ((8192, 1280), torch.float8_e4m3fn),
    "attn.wq_b.weight_scale": ((256, 40), torch.uint8),
    "attn.rotary_emb.cos_sin_cache": ((65536, 64), torch.float32),
    "attn.attn_sink": ((64,), torch.float32),
    "attn.wo_a.weight": ((2048, 4096), torch.float8_e4m3fn),
    "attn.wo_a.weight_scale": ((64, 128), torch.uint8),
    "attn.wo_b.weight": ((5120, 2048), torch.float8_e4m3fn),
    "attn.wo_b.weight_scale": ((160, 64), torch.uint8),
    "hc_ffn_fn": ((24, 20480), torch.float32),
    "hc_ffn_scale": ((3,), torch.float32),
    "hc_ffn_base": ((24,), torch.float32),
    "ffn_norm.weight": ((5120,), torch.bfloat16),
    "ffn.gate.weight": ((384, 5120), torch.bfloat16),
    "ffn.gate.e_score_correction_bias": ((384,), torch.float32),
    "ffn.experts.routed_experts.w13_weight": ((384, 1280, 2560), torch.float4_e2m1fn_x2),
    "ffn.experts.routed_experts.w13_weight_scale": ((491520, 160), torch.uint8),
    "ffn.experts.routed_experts.w2_weight": ((384, 5120, 320), torch.float4_e2m1fn_x2),
    "ffn.experts.routed_experts.w2_weight_scale": ((1966080, 24), torch.uint8),
    "ffn.shared_experts.gate_up_proj.weight": ((1152, 5120), torch.float8_e4m3fn),
    "ffn.shared_experts.gate_up_proj.weight_scale": ((36, 160), torch.uint8),
    "ffn.shared_experts.down_proj.weight": ((5120, 576), torch.float8_e4m3fn),
    "ffn.shared_experts.down_proj.weight_scale": ((160, 18), torch.uint8),
}
# What is another at TP 2.
GFX950_TP2: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
    **GFX950_TP4,
    "attn.wq_b.weight": ((16384, 1280), torch.float8_e4m3fn),
    "attn.wq_b.weight_scale": ((512, 40), torch.uint8),
    "attn.wo_a.weight": ((4096, 4096), torch.float8_e4m3fn),
    "attn.wo_a.weight_scale": ((128, 128), torch.uint8),
    "attn.wo_b.weight": ((5120, 4096), torch.float8_e4m3fn),
    "attn.wo_b.weight_scale": ((160, 128), torch.uint8),
    "ffn.experts.routed_experts.w13_weight": ((384, 2304, 2560), torch.float4_e2m1fn_x2),
    "ffn.experts.routed_experts.w13_weight_scale": ((884736, 160), torch.uint8),
    "ffn.experts.routed_experts.w2_weight": ((384, 5120, 576), torch.float4_e2m1fn_x2),
    "ffn.experts.routed_experts.w2_weight_scale": ((1966080, 40), torch.uint8),
    "ffn.shared_experts.gate_up_proj.weight": ((2304, 5120), torch.float8_e4m3fn),
    "ffn.shared_experts.gate_up_proj.weight_scale": ((72, 160), torch.uint8),
    "ffn.shared_experts.down_proj.weight": ((5120, 1152), torch.float8_e4m3fn),
    "ffn.shared_experts.down_proj.weight_scale": ((160, 36), torch.uint8),
}
# gfx942's own copies at TP 4, by argument; all are bytes.
GFX942_COPIES: dict[str, tuple[int, ...]] = {
    "wqkv": (1792, 5120),
    "wqkv_s": (56, 160),
    "wqb": (8192, 1280),
    "wqb_s": (256, 40),
    "woa": (2048, 4096),
    "woa_s": (64, 128),
    "wob": (5120, 2048),
    "wob_s": (160, 64),
    "w13": (384, 1152, 2560),
    "w13_s": (384, 1152, 160),
    "w2": (384, 5120, 288),
    "w2_s": (384, 5120, 18),
    "sgu": (1152, 5120),
    "sgu_s": (36, 160),
    "sw2": (5120, 640),
    "sw2_s": (160, 20),
}


def nothing(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A tensor without memory."""
    return torch.empty(shape, dtype=dtype, device="meta")


def layer_of(
    tensors: dict[str, tuple[tuple[int, ...], torch.dtype]], **changed: torch.Tensor | None
) -> Any:
    """A decoder layer with these tensors; ``changed`` by path, ``__`` for a dot, None to leave one out."""
    layer = SimpleNamespace(attn=SimpleNamespace(layer_id=7, compress_ratio=2))
    given = {name.replace("__", "."): tensor for name, tensor in changed.items()}
    for path, (shape, dtype) in tensors.items():
        tensor = given.pop(path) if path in given else nothing(shape, dtype)
        if tensor is not None:
            put(layer, path, tensor)
    if given:
        raise LookupError(f"no such tensors: {sorted(given)}")
    return layer


def put(owner: Any, path: str, value: object) -> None:
    """Set an attribute at a dotted path."""
    *parents, name = path.split(".")
    for parent in parents:
        if not hasattr(owner, parent):
            setattr(owner, parent, SimpleNamespace())
        owner = getattr(owner, parent)
    setattr(owner, name, value)


def copies_942(**changed: torch.Tensor) -> dict[str, torch.Tensor]:
    """gfx942's copies at TP 4."""
    made = {name: nothing(shape, torch.uint8) for name, shape in GFX942_COPIES.items()}
    return {**made, **changed}
