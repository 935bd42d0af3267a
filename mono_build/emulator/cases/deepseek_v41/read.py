"""Reading a launch's outputs and hand-overs from memory."""

from __future__ import annotations

import torch
from torch import Tensor

from mono_build.emulator.cases.case import Memory
from mono_build.emulator.cases.deepseek_v41 import regions
from mono_build.emulator.cases.deepseek_v41.build import Target
from mono_build.emulator.references.deepseek_v41.geometry import HIDDEN
from mono_build.emulator.references.formats import GROUP, decode_e4m3, scale

_DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32, "i32": torch.int32}


class RankMemory:
    """One rank's buffers and scratch regions as tensors."""

    def __init__(self, memory: Memory, rank: int, target: Target) -> None:
        """Nothing is read before it is asked for."""
        self._memory, self.rank, self._target = memory, rank, target
        self._layout = regions.scratch(target)

    def buffer(self, name: str, form: str, *shape: int, offset: int = 0) -> Tensor:
        """A buffer's beginning (from byte ``offset``) in this shape."""
        dtype = _DTYPES[form]
        size = dtype.itemsize * torch.Size(shape).numel()
        return self._memory.read(self.rank, name, offset, size).view(dtype).view(shape)

    def data(self, name: str, offset: int, size: int) -> Tensor:
        """A buffer's bytes."""
        return self._memory.read(self.rank, name, offset, size)

    def plain(self, region: str, form: str, *shape: int) -> Tensor:
        """A scratch region of plain values."""
        return self.buffer("scratch", form, *shape, offset=self._layout[region][0])

    def pairs(self, region: str, form: str, *shape: int) -> Tensor:
        """The values of a scratch region of pairs; for bf16 a pair holds two."""
        return self._pairs("scratch", self._layout[region][0], form, shape)

    def attention_parts(self) -> Tensor:
        """The ranks' attention partials in this rank's peer memory: [tp, T, 5120] bfloat16."""
        return self._pushed(regions.attention_offset(self._target))

    def expert_parts(self) -> Tensor:
        """The ranks' experts' partials in this rank's peer memory: [tp, T, 5120] bfloat16."""
        return self._pushed(regions.ffn_offset(self._target))

    def e4m3(self, data: Tensor, codes: Tensor) -> Tensor:
        """MXFP8 bytes [..., K] under scale codes [..., K / 32], as values in float64."""
        values = decode_e4m3(data, fnuz=self._target.gfx942)
        return values * scale(codes).repeat_interleave(GROUP, -1)

    def mxfp8(self, region: str, codes: str, tokens: int, width: int) -> tuple[Tensor, Tensor]:
        """A plain MXFP8 region as values [tokens, width], and its codes."""
        data = self.plain(region, "i32", tokens, width // 4).view(torch.uint8)
        scales = self.plain(codes, "i32", tokens, width // GROUP)
        return self.e4m3(data, scales), scales

    def _pushed(self, offset: int) -> Tensor:
        b = self._target.build
        return self._pairs("peer", offset, "bf16", (b.tp, b.tokens, HIDDEN))

    def _pairs(self, buffer: str, offset: int, form: str, shape: tuple[int, ...]) -> Tensor:
        count = torch.Size(shape).numel() // (2 if form == "bf16" else 1)
        words = self.buffer(buffer, "i32", count, 2, offset=offset)[:, 0].contiguous()
        return words.view(_DTYPES[form]).view(shape)
