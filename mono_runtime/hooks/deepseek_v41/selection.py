"""An index source's selection between K1 and K2: vLLM's compressor and indexer, on K1's outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def select(attn: Any, positions: torch.Tensor, normed: torch.Tensor, qr: torch.Tensor) -> None:
    """Write the step's top-k keys into ``attn.topk_indices_buffer``, and new keys into their caches.

    What vLLM's attention runs before it attends (``attention.py``, ``amd/rocm.py``), one after the
    other. The indexer's keys have to be in their cache before it scores.

    Args:
        attn: the layer's attention; it has an indexer, and a compressor where it writes keys itself.
        positions: [rows] int64.
        normed: the layer's input after the attention's norm [rows, 5120] bfloat16.
        qr: the query's low rank after its norm [rows, 1280] bfloat16.
    """
    indexer, rotary = attn.indexer, attn.indexer_rotary_emb
    compressor = attn.compressor
    if compressor is not None:
        scores = _product(normed, compressor.fused_wkv_wgate.weight)
        latent = compressor(scores, positions)
        compressor.insert_cache(latent, positions, attn.rotary_emb)
        indexer._produce_k(latent, positions, rotary)
    heads, _ = indexer.weights_proj(normed)
    query, scale, heads = indexer.forward_q(qr, None, heads, positions, rotary)
    # An FP8 query has its scale folded into the heads' weights, an MXFP4 one comes with it.
    indexer.indexer_op(normed, query if scale is None else (query, scale), None, heads)


def _product(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """``rows`` [n, k] times ``weight`` [m, k] transposed, in float32: it must not be rounded to bfloat16."""
    import torch

    if rows.device.type == "cpu":
        # Emulated devices keep their tensors there, and torch's mixed product is the GPU's alone.
        return rows.float() @ weight.float().T
    return torch.mm(rows, weight.T, out_dtype=torch.float32)
