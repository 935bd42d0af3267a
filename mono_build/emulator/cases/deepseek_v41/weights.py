"""Random weights of a layer: as numbers for the references, as bytes for the kernels (see `packing`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy
import numpy.typing
import torch
from torch import Tensor

from mono_build.emulator.cases.deepseek_v41.build import Build
from mono_build.emulator.cases.deepseek_v41.rng import Random
from mono_build.emulator.references.deepseek_v41.experts import Expert
from mono_build.emulator.references.deepseek_v41.geometry import (
    HEAD_DIM,
    HIDDEN,
    MIXES,
    O_RANK,
    Q_RANK,
    STREAMS,
)
from mono_build.emulator.references.deepseek_v41.seam import MixWeights
from mono_build.emulator.references.formats import (
    decode_e2m1,
    decode_e4m3,
    round_e4m3,
    scale,
    unpack_e2m1,
)

# Codes are drawn as if normal numbers of this deviation had been quantised: E4M3's and E2M1's range is
# then used as in a real checkpoint, and few codes are at the limit.
E4M3_DEVIATION = 100.0
E2M1_DEVIATION = 2.0


@dataclass(frozen=True, slots=True)
class Dense:
    """An MXFP8 matrix: OCP E4M3 bytes [N, K], E8M0 codes [N / 32, K / 32] of blocks of 32 by 32."""

    codes: Tensor
    scales: Tensor

    def values(self) -> Tensor:
        """The dequantised matrix (float32, exact)."""
        factor = scale(self.scales).float().repeat_interleave(32, 0).repeat_interleave(32, 1)
        return torch.from_numpy(_e4m3_floats().take(self.codes.numpy())).mul_(factor)


@dataclass(frozen=True, slots=True)
class Fp4:
    """An MXFP4 matrix [rows, k], made from ``random`` whenever it is asked for: experts are many and large."""

    random: Random
    rows: int
    k: int

    @property
    def packed(self) -> Tensor:
        """E2M1 pairs [rows, k / 2], the lower K in the low nibble."""
        return self.random.of("codes").drawn(_e2m1_table(), self.rows, self.k // 2)

    @property
    def scales(self) -> Tensor:
        """E8M0 codes [rows, k / 32]."""
        around = round(127 - math.log2(E2M1_DEVIATION * self.k**0.5))
        codes = self.random.of("scales").integers(around - 1, around + 2, self.rows, self.k // 32)
        return codes.to(torch.uint8)

    def values(self) -> Tensor:
        """The dequantised matrix (float32, exact)."""
        pairs = torch.from_numpy(_e2m1_pairs().take(self.packed.numpy()))
        values = pairs.view(torch.float32).view(self.rows, -1, 32)
        return values.mul_(scale(self.scales).float()[..., None]).flatten(1)


@dataclass(frozen=True, slots=True)
class RoutedExpert:
    """One routed expert on one rank: gate and up [inter, 5120], down [5120, inter]."""

    gate: Fp4
    up: Fp4
    down: Fp4

    def values(self) -> Expert:
        """The dequantised weights."""
        return Expert(self.gate.values(), self.up.values(), self.down.values())


@dataclass(frozen=True, slots=True)
class SharedExpert:
    """The shared expert on one rank: gate rows, then up rows [2 inter, 5120]; down [5120, inter]."""

    gate_up: Dense
    down: Dense

    def values(self) -> Expert:
        """The dequantised weights."""
        gate, up = self.gate_up.values().chunk(2)
        return Expert(gate, up, self.down.values())


@dataclass(frozen=True, slots=True)
class SeamWeights:
    """A seam's weights: what makes its mixes, and its norm [5120] bfloat16."""

    mix: MixWeights
    norm: Tensor


class LayerWeights:
    """A layer's weights from a seed. Replicated ones are the same on every rank; nothing is kept."""

    def __init__(self, build: Build, random: Random) -> None:
        """Nothing is made before it is asked for."""
        self._build, self._shard, self._random = build, build.shard, random.of("weights")

    def seam(self, which: str) -> SeamWeights:
        """The ``attention`` or the ``ffn`` seam's weights."""
        r = self._random.of("seam", which)
        mix = MixWeights(
            r.of("fn").normal(MIXES, STREAMS * HIDDEN, std=(STREAMS * HIDDEN) ** -0.5),
            r.of("scale").uniform(3, low=0.5, high=1.5),
            r.of("base").normal(MIXES, std=0.5),
        )
        return SeamWeights(mix, _norm(r.of("norm"), HIDDEN))

    def wqkv(self) -> Dense:
        """[1792, 5120]: the query's low rank, then the KV row; on every rank alike."""
        return _dense(self._random.of("wqkv"), Q_RANK + HEAD_DIM, HIDDEN)

    def q_norm(self) -> Tensor:
        """[1280] bfloat16."""
        return _norm(self._random.of("q_norm"), Q_RANK)

    def kv_norm(self) -> Tensor:
        """[512] bfloat16."""
        return _norm(self._random.of("kv_norm"), HEAD_DIM)

    def wq_b(self, rank: int) -> Dense:
        """[heads 512, 1280]."""
        return _dense(self._random.of("wq_b", rank), self._shard.heads * HEAD_DIM, Q_RANK)

    def wo_a(self, rank: int) -> Dense:
        """[groups 1024, 4096]."""
        rows = self._shard.groups * O_RANK
        return _dense(self._random.of("wo_a", rank), rows, self._shard.group_width)

    def wo_b(self, rank: int) -> Dense:
        """[5120, groups 1024]."""
        return _dense(self._random.of("wo_b", rank), HIDDEN, self._shard.groups * O_RANK)

    def sink(self, rank: int) -> Tensor:
        """[heads] float32: the sink's logit of each head."""
        return self._random.of("sink", rank).normal(self._shard.heads)

    def gate(self) -> Tensor:
        """The router's weight [experts, 5120] bfloat16; experts 64 k + 1 and 64 k + 2 have equal rows, so they tie."""
        gate = self._random.of("gate").normal(self._build.experts, HIDDEN, std=2 * HIDDEN**-0.5)
        gate[2::64] = gate[1::64]
        return gate.bfloat16()

    def bias(self) -> Tensor:
        """The router's bias [experts] float32, equal where the rows are."""
        bias = self._random.of("bias").normal(self._build.experts, std=0.1)
        bias[2::64] = bias[1::64]
        return bias

    def expert(self, rank: int, expert: int) -> RoutedExpert:
        """One routed expert's share of a rank."""
        r, inter = self._random.of("expert", rank, expert), self._shard.inter
        return RoutedExpert(
            Fp4(r.of("gate"), inter, HIDDEN),
            Fp4(r.of("up"), inter, HIDDEN),
            Fp4(r.of("down"), HIDDEN, inter),
        )

    def shared(self, rank: int) -> SharedExpert:
        """The shared expert's share of a rank."""
        r, inter = self._random.of("shared", rank), self._shard.inter
        return SharedExpert(
            _dense(r.of("gate_up"), 2 * inter, HIDDEN), _dense(r.of("down"), HIDDEN, inter)
        )


def e4m3_table() -> Tensor:
    """65536 E4M3 bytes as normal numbers of deviation 100 would give them (-0 included, NaN not)."""
    return _e4m3_table()


def _norm(random: Random, width: int) -> Tensor:
    return (1 + random.normal(width, std=0.1)).bfloat16()


def _dense(random: Random, rows: int, k: int) -> Dense:
    around = round(127 - math.log2(E4M3_DEVIATION * k**0.5))
    return Dense(
        random.of("codes").drawn(_e4m3_table(), rows, k),
        random.of("scales").integers(around - 1, around + 2, rows // 32, k // 32).to(torch.uint8),
    )


@cache
def _e4m3_floats() -> numpy.typing.NDArray[numpy.float32]:
    values: numpy.typing.NDArray[numpy.float32] = (
        decode_e4m3(torch.arange(256), fnuz=False).float().numpy()
    )
    return values


@cache
def _e2m1_pairs() -> numpy.typing.NDArray[numpy.float64]:
    """By byte, its two float32 values in the eight bytes of a float64: one look-up gives both."""
    values = decode_e2m1(unpack_e2m1(torch.arange(256, dtype=torch.uint8)[:, None]))
    return numpy.ascontiguousarray(values.view(torch.float64).numpy()).reshape(256)


@cache
def _e4m3_table() -> Tensor:
    values = round_e4m3(_normal_table().double().mul(E4M3_DEVIATION).clamp(-448, 448))
    positive = decode_e4m3(torch.arange(127), fnuz=False)
    code = torch.searchsorted(positive, values.abs().contiguous())
    negative = torch.signbit(_normal_table())
    table = (code + 128 * negative).to(torch.uint8)
    table[::4096] = 0x80  # some -0, which FNUZ does not have
    return table


@cache
def _e2m1_table() -> Tensor:
    magnitudes = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    values = _normal_table() * E2M1_DEVIATION
    code = torch.bucketize(values.abs(), magnitudes) + 8 * torch.signbit(values)
    other = code[Random(0, "pairs").permutation(65536)]
    return (code + 16 * other).to(torch.uint8)


@cache
def _normal_table() -> Tensor:
    return Random(0, "normal table").normal(65536)
