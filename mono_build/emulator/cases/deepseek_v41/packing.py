"""Weights as the kernels of an architecture read them.

gfx950 reads what vLLM and AITER hold: dense MXFP8 row by row; experts in AITER's 16 x 16 order, gate
and up rows alternating by tiles of 16, scales in AITER's shuffled order, the width padded with zeros.
gfx942 reads copies that vLLM makes at load (`weights942`): FNUZ bytes (the OCP bits, codes one higher,
no -0) with the bytes that a wave loads at once side by side, experts alike, without padding.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional
from torch import Tensor

from mono_build.emulator.cases.deepseek_v41.build import Target
from mono_build.emulator.cases.deepseek_v41.weights import Dense, RoutedExpert
from mono_build.emulator.references.bounded import split
from mono_build.emulator.references.deepseek_v41.geometry import HIDDEN


def dense(weight: Dense, *, gfx942: bool) -> tuple[Tensor, Tensor]:
    """An MXFP8 matrix's bytes and scale codes."""
    if not gfx942:
        return weight.codes, weight.scales
    rows, k = weight.codes.shape
    pad = -k % 128
    codes = torch.where(weight.codes == 0x80, 0, weight.codes).to(torch.uint8)
    codes = torch.nn.functional.pad(codes, (0, pad))
    scales = torch.nn.functional.pad(weight.scales + 1, (0, pad // 32), value=128)
    # A step of 128 K: two halves of two blocks of 32, each block four chunks of 8 bytes. The wave's
    # first load takes the first half: chunk by chunk, the 16 rows', two blocks' chunks together.
    parts = codes.view(
        rows // 16, 16, (k + pad) // 128, 2, 2, 4, 8
    )  # tile row step half block chunk byte
    return parts.permute(0, 2, 3, 5, 1, 4, 6).reshape(rows, k + pad).contiguous(), scales


def expert_sizes(target: Target) -> dict[str, int]:
    """Bytes of one expert in each of the four expert tensors."""
    inter = target.inter
    scale_columns = inter // 32 if target.gfx942 else -(-(inter // 32) // 8) * 8
    return {
        "w13": 2 * inter * HIDDEN // 2,
        "w13_s": 2 * inter * HIDDEN // 32,
        "w2": HIDDEN * inter // 2,
        "w2_s": HIDDEN * scale_columns,
    }


def expert(weight: RoutedExpert, target: Target) -> dict[str, Callable[[], Tensor]]:
    """What makes one expert's bytes in each of the four expert tensors."""
    gate, up, down = weight.gate, weight.up, weight.down
    if target.gfx942:
        return {
            "w13": lambda: _fp4_942(_alternate(gate.packed, up.packed, 1)),
            "w13_s": lambda: _scales_942(_alternate(gate.scales, up.scales, 1)),
            "w2": lambda: _fp4_942(down.packed),
            "w2_s": lambda: down.scales,
        }
    pad = target.inter - target.build.shard.inter

    def rows(gate: Tensor, up: Tensor) -> Tensor:
        return _alternate(_pad(gate, 0, pad), _pad(up, 0, pad), 16)

    columns = expert_sizes(target)["w2_s"] // HIDDEN
    return {
        "w13": lambda: _fp4_950(rows(gate.packed, up.packed)),
        "w13_s": lambda: _scales_950(rows(gate.scales, up.scales)),
        "w2": lambda: _fp4_950(_pad(down.packed, pad // 2, 0)),
        "w2_s": lambda: _scales_950(_pad(down.scales, columns - down.k // 32, 0)),
    }


def _pad(t: Tensor, columns: int, rows: int) -> Tensor:
    padded = torch.zeros(t.shape[0] + rows, t.shape[1] + columns, dtype=t.dtype)
    padded[: t.shape[0], : t.shape[1]] = t
    return padded


def _alternate(a: Tensor, b: Tensor, rows: int) -> Tensor:
    tiles = torch.stack([split(a, 0, -1, rows), split(b, 0, -1, rows)], 1)
    return tiles.flatten(0, 2).contiguous()


def _fp4_950(packed: Tensor) -> Tensor:
    # Tiles of 16 rows; in a tile, chunk by chunk of 16 bytes (a scale block) the 16 rows'.
    tiles = packed.view(packed.shape[0] // 16, 16, -1, 16)
    return tiles.transpose(1, 2).contiguous()


def _scales_950(codes: Tensor) -> Tensor:
    # Blocks of 32 rows by 8 columns: column mod 4, row mod 16, column half, row half.
    blocks = codes.view(codes.shape[0] // 32, 2, 16, codes.shape[1] // 8, 2, 4)
    return blocks.permute(0, 3, 5, 2, 4, 1).contiguous()


def _fp4_942(packed: Tensor) -> Tensor:
    low, high = packed & 0x0F, packed & 0xF0
    packed = torch.where(low == 0x08, 0, low) | torch.where(high == 0x80, 0, high)
    full = packed.shape[1] // 64 * 64
    rows = packed.view(packed.shape[0] // 16, 16, -1)
    # A step of four blocks of 16 bytes (the last one of two): lane group by lane group (4 bytes of
    # every block) the 16 rows', the blocks' dwords side by side.
    head = split(rows[..., :full], 2, -1, 4, 4, 4).permute(0, 2, 4, 1, 3, 5)
    parts = [head.reshape(len(rows), -1)]
    if full < packed.shape[1]:
        tail = split(rows[..., full:], 2, -1, 2, 4, 4).permute(0, 2, 4, 1, 3, 5)
        parts.append(tail.reshape(len(rows), -1))
    return torch.cat(parts, 1).to(torch.uint8).contiguous()


def _scales_942(codes: Tensor) -> Tensor:
    # Tiles of 16 rows; in a tile, round by round of 8 blocks the 16 rows'.
    tiles = codes.view(codes.shape[0] // 16, 16, -1, 8)
    return tiles.transpose(1, 2).contiguous()
